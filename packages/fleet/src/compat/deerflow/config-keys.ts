/** The rules for DeerFlow's `sandbox`, `skills` and `uploads`. One rule per key, in DeerFlow's order. */

import { DURATION_MAX_MS } from "../../backend/config/amounts.ts";
import { DEFAULTS } from "../../config/defaults.ts";
import type { ImportNote } from "./import-config.ts";

/** The input of a rule. */
export interface Given {
  set(path: string, value: unknown): void;
  note(key: string, outcome: ImportNote["outcome"], note: string): void;
  /** Absolute, relative to the file's directory. */
  path(key: string, path: string): string;
  fleetId(key: string, prefix: string): void;
}

/** `section` is the key's whole section. */
export type KeyRule = (given: Given, value: unknown, key: string, section: Readonly<Record<string, unknown>>) => void;

const SKILLS_PATH = "/mnt/skills";
const UNHEEDED = "with this provider it has no effect in DeerFlow either; limits.onFull decides";

/** Its replicas are a hard limit, which the others lack. */
function isE2b(section: Readonly<Record<string, unknown>>): boolean {
  return String(section.use ?? "").includes("E2B");
}

export const DEERFLOW_KEYS: Readonly<Record<string, KeyRule>> = {
  "sandbox.use": (given, value, key) => {
    const use = String(value);
    if (use.includes("LocalSandboxProvider")) given.set("backend", "local");
    else if (use.includes("AioSandboxProvider")) given.set("backend", "docker");
    else given.note(key, "no-counterpart", `${use}: no such backend; choose local or docker`);
  },
  "sandbox.allow_host_bash": none("commands always run in a sandbox, never on the host"),
  "sandbox.image": text("docker.image"),
  "sandbox.port": none("sandboxes need no ports of the host"),
  "sandbox.replicas": (given, value, key, section) => {
    const count = wholeNumber(value);
    if (count === null || count < 1) return given.note(key, "unknown", `${String(value)} is no number of sandboxes`);
    const isHard = isE2b(section);
    const burst = isHard && section.overflow_policy === "burst" ? (wholeNumber(section.burst_limit) ?? 0) : 0;
    given.set("limits.max", count + Math.max(0, burst));
    given.set("limits.mode", isHard ? "hard" : "soft");
    given.note(key, "changed", "it counts for the whole fleet, not for each process");
  },
  "sandbox.overflow_policy": (given, value, key, section) => {
    if (!isE2b(section)) return given.note(key, "no-counterpart", UNHEEDED);
    given.set("limits.onFull", value === "wait" ? "wait" : "reject");
    if (value === "burst")
      given.note(key, "changed", "the extra room is part of limits.max; beyond it acquires are refused");
    else if (value !== "wait" && value !== "reject") given.note(key, "unknown", `${String(value)} is no policy`);
  },
  "sandbox.acquire_timeout": seconds("acquireTimeoutMs"),
  "sandbox.burst_limit": (given, _value, key, section) => {
    if (!isE2b(section)) given.note(key, "no-counterpart", UNHEEDED);
    else if (section.overflow_policy !== "burst")
      given.note(key, "no-counterpart", "it only counts with overflow_policy: burst");
    else if (section.replicas === undefined) given.note(key, "no-counterpart", "without `replicas` it adds to nothing");
  },
  "sandbox.container_prefix": (given, value, key) => given.fleetId(key, String(value)),
  "sandbox.idle_timeout": seconds("idleTimeoutMs"),
  "sandbox.health_check_skip_seconds": none("a sandbox that dies says so; nothing is polled"),
  "sandbox.ownership.type": (given, value, key) => {
    given.set("store.type", "sqlite");
    const shared = "the store is one SQLite file for all processes of a host";
    given.note(key, value === "memory" ? "changed" : "no-counterpart", shared);
  },
  "sandbox.ownership.redis_url": none("there is no store on Redis; all processes of a host share SQLite"),
  "sandbox.ownership.renewal_interval_seconds": (given, value, key, section) => {
    const interval = Number(value);
    const ownership = section.ownership as { readonly ttl_multiplier?: unknown };
    const multiplier = Number(ownership.ttl_multiplier ?? 4);
    const lifetimeMs = Math.round(interval * multiplier * 1_000);
    if (!(lifetimeMs >= 1_000 && lifetimeMs <= DURATION_MAX_MS))
      return given.note(key, "unknown", "it gives no usable lifetime of a session");
    given.set("sessionLifetimeMs", lifetimeMs);
    if (lifetimeMs > DEFAULTS.orphanTimeoutMs) given.set("orphanTimeoutMs", lifetimeMs);
    if (lifetimeMs / 3 < DEFAULTS.housekeepingIntervalMs)
      given.set("housekeepingIntervalMs", Math.floor(lifetimeMs / 3));
  },
  "sandbox.ownership.ttl_multiplier": (given, _value, key, section) => {
    const ownership = section.ownership as { readonly renewal_interval_seconds?: unknown };
    if (ownership.renewal_interval_seconds === undefined)
      given.note(key, "no-counterpart", "set sessionLifetimeMs; sessions are renewed four times in it");
  },
  "sandbox.ownership.key_prefix": none("the store is a file of its own"),
  "sandbox.mounts": (given, value, key) => {
    const mounts = (Array.isArray(value) ? value : []).flatMap((mount: unknown, index) => {
      const { host_path, container_path, read_only } = (mount ?? {}) as Record<string, unknown>;
      const at = `${key}[${index}]`;
      if (typeof host_path !== "string" || typeof container_path !== "string") {
        given.note(at, "unknown", "it does not say what is mounted where");
        return [];
      }
      if (/^\/mnt\/(user-data|acp-workspace|skills)(\/|$)/.test(container_path)) {
        given.note(at, "no-counterpart", `${container_path} belongs to the thread and cannot be mounted over`);
        return [];
      }
      return [{ hostPath: given.path(at, host_path), sandboxPath: container_path, readOnly: read_only === true }];
    });
    if (mounts.length > 0) given.set("blueprints.default.mounts", mounts);
  },
  "sandbox.thread_data_mounts": none("where workspaces lie is known; nothing has to be said about it"),
  "sandbox.environment": (given, value) => {
    const entries = Object.entries((value ?? {}) as Record<string, unknown>);
    // There a whole value is a variable or none; here one may be anywhere, so a dollar sign is doubled.
    const translated = entries.map(([name, raw]) => {
      const told = String(raw ?? "");
      return [name, /^\$[A-Za-z_][A-Za-z0-9_]*$/.test(told) ? told : told.replaceAll("$", "$$$$")];
    });
    if (translated.length > 0) given.set("blueprints.default.environment", Object.fromEntries(translated));
  },
  "sandbox.bash_output_max_chars": none("give it to the tools, as `outputBudgetChars`; longer output goes to a file"),
  "sandbox.read_file_output_max_chars": none("give it to the tools, as `readMaxChars`; default 50,000"),
  "sandbox.ls_output_max_chars": none("ls counts entries: give `listMaxEntries` to the tools; default 1,000"),
  "sandbox.bash_command_timeout": none("each exec says its own `timeoutMs`"),
  "sandbox.provisioner_url": none(
    "a provisioner is `backend: remote` with `remote.url`; a gateway can also take its place",
  ),
  "sandbox.provisioner_api_key": none(
    "the key of a provisioner comes from `remote.keyFile` or SANDLOT_PROVISIONER_KEY",
  ),
  "skills.path": (given, value, key) => given.set("skills", { hostPath: given.path(key, String(value)) }),
  "skills.container_path": (given, value, key) => {
    if (value !== SKILLS_PATH) given.note(key, "no-counterpart", `skills are always at ${SKILLS_PATH}`);
  },
  "uploads.max_files": amount("gateway.uploads.maxFiles"),
  "uploads.max_file_count": amount("gateway.uploads.maxFiles"),
  "uploads.max_file_size": amount("gateway.uploads.maxFileBytes"),
  "uploads.max_single_file_size": amount("gateway.uploads.maxFileBytes"),
  "uploads.max_total_size": amount("gateway.uploads.maxTotalBytes"),
  "uploads.auto_convert_documents": (given, value) => given.set("gateway.uploads.convertDocuments", value === true),
  "uploads.pdf_converter": none("one reader serves all documents"),
};

function none(why: string): KeyRule {
  return (given, _value, key) => given.note(key, "no-counterpart", why);
}

function text(path: string): KeyRule {
  return (given, value) => given.set(path, String(value));
}

function seconds(path: string): KeyRule {
  return (given, value, key) => {
    const ms = Math.round(Number(value) * 1_000);
    if (ms >= 0 && ms <= DURATION_MAX_MS) given.set(path, ms);
    else given.note(key, "unknown", `${String(value)} is no number of seconds that can be waited`);
  };
}

/** A value that is no positive number counts as absent, as it does there. */
function amount(path: string): KeyRule {
  return (given, value, key) => {
    const count = wholeNumber(value);
    if (count !== null && count > 0) given.set(path, count);
    else given.note(key, "unknown", `${String(value)} is no positive number; the default stays`);
  };
}

function wholeNumber(value: unknown): number | null {
  const count = typeof value === "boolean" ? Number.NaN : Number(value);
  return Number.isSafeInteger(count) ? count : null;
}
