/**
 * Problems that several values cause together. Pure: each check reads the completed configuration and returns problems.
 */

import { posix } from "node:path";
import { ENVIRONMENT_ROOT, HOME_LINK, isSandlotError, nearest } from "@sandlot/contract";
import { parseHost } from "../backend/network/host-name.ts";
import { compilePolicy } from "../backend/network/policy.ts";
import { namedRange } from "../backend/network/registry-rules.ts";
import { isWithin } from "../world/paths.ts";
import { DEFAULT_BLUEPRINT } from "./defaults.ts";
import { type Problem, showPath } from "./problems.ts";
import type { CompletedBlueprint, CompletedConfig } from "./schema.ts";

/** How often housekeeping runs in a session's lifetime, so that what a dead instance left is cleaned up soon. */
const LOOKS_PER_LIFETIME = 3;

/** Sandlot's own mount points. A mount at, above or below one of these would hide a thread's files. */
const RESERVED_PATHS = ["/mnt/user-data", "/mnt/acp-workspace", "/mnt/skills", HOME_LINK];

export function relationProblems(config: CompletedConfig): Problem[] {
  return [
    ...limitProblems(config),
    ...poolProblems(config),
    ...durationProblems(config),
    ...Object.entries(config.blueprints).flatMap(([name, blueprint]) => [...blueprintProblems(name, blueprint)]),
  ];
}

function* limitProblems({ limits, pool }: CompletedConfig): Generator<Problem> {
  const blanks = Object.values(pool).reduce((sum, target) => sum + target, 0);
  if (limits.max < blanks) {
    yield {
      path: "limits.max",
      problem: `is ${limits.max}, but pool asks for ${blanks} blank sandboxes; raise it or ask for fewer`,
    };
  }
  if (limits.maxPerUser > limits.max) {
    yield {
      path: "limits.maxPerUser",
      problem: `is ${limits.maxPerUser}, more than the whole fleet may have (limits.max is ${limits.max}); use 0 for no limit per user`,
    };
  }
  if (limits.maxPerEngine > limits.max) {
    yield {
      path: "limits.maxPerEngine",
      problem: `is ${limits.maxPerEngine}, more than the whole fleet may have (limits.max is ${limits.max}); use 0 for no limit per engine`,
    };
  }
  if (limits.maxPerEngine > 0 && limits.maxPerEngine < blanks) {
    yield {
      path: "limits.maxPerEngine",
      problem: `is ${limits.maxPerEngine}, but pool asks for ${blanks} blank sandboxes on each engine; raise it or ask for fewer`,
    };
  }
  for (const [user, { max }] of Object.entries(limits.users ?? {})) {
    if (max <= limits.max) continue;
    yield {
      path: showPath(["limits", "users", user, "max"]),
      problem: `is ${max}, more than the whole fleet may have (limits.max is ${limits.max}); use 0 for no limit for this user`,
    };
  }
}

function* poolProblems({ pool, blueprints }: CompletedConfig): Generator<Problem> {
  const known = [...new Set([DEFAULT_BLUEPRINT, ...Object.keys(blueprints)])];
  for (const name of Object.keys(pool)) {
    if (known.includes(name)) continue;
    const suggestion = nearest(name, known);
    const problem = `names a blueprint that is not configured; configured are ${known.join(", ")}`;
    yield { path: showPath(["pool", name]), problem, ...(suggestion && { suggestion }) };
  }
}

function* durationProblems(config: CompletedConfig): Generator<Problem> {
  const { housekeepingIntervalMs, sessionLifetimeMs, orphanTimeoutMs, leakDetection } = config;
  const longest = Math.floor(sessionLifetimeMs / LOOKS_PER_LIFETIME);
  if (longest < 1) {
    yield {
      path: "sessionLifetimeMs",
      problem: `must be at least ${LOOKS_PER_LIFETIME} ms, so that housekeeping fits into it (it is ${sessionLifetimeMs})`,
    };
  } else if (housekeepingIntervalMs > longest) {
    yield {
      path: "housekeepingIntervalMs",
      problem:
        `is ${housekeepingIntervalMs}, but housekeeping must look ${LOOKS_PER_LIFETIME} times ` +
        `in sessionLifetimeMs (${sessionLifetimeMs}); use at most ${longest}`,
    };
  }
  if (orphanTimeoutMs < sessionLifetimeMs) {
    yield {
      path: "orphanTimeoutMs",
      problem:
        `is ${orphanTimeoutMs}, less than sessionLifetimeMs (${sessionLifetimeMs}); sandboxes in use would count as left ` +
        "over before their holders could register again",
    };
  }
  if (leakDetection.captureStacks && leakDetection.afterMs === 0) {
    yield {
      path: "leakDetection.captureStacks",
      problem:
        "costs time on every acquire and reports nothing while leakDetection.afterMs is 0; set that too, or leave this off",
    };
  }
}

function* blueprintProblems(name: string, { mounts, network, setup }: CompletedBlueprint): Generator<Problem> {
  const at = (...path: (string | number)[]) => showPath(["blueprints", name, ...path]);
  if (setup !== undefined) yield* networkProblems([name, "setup"], setup.network);
  yield* networkProblems([name], network);
  const seen = new Set<string>();
  for (const [index, { sandboxPath }] of mounts.entries()) {
    const path = at("mounts", index, "sandboxPath");
    const problem = mountProblem(sandboxPath, seen);
    if (problem !== undefined) yield { path, problem };
    if (setup !== undefined && isWithin(posix.resolve("/", sandboxPath), ENVIRONMENT_ROOT))
      yield { path, problem: `lies in ${ENVIRONMENT_ROOT}, where the environment of this blueprint's setup is` };
    seen.add(posix.resolve("/", sandboxPath));
  }
}

function* networkProblems(owner: readonly string[], network: CompletedBlueprint["network"]): Generator<Problem> {
  const at = (...path: (string | number)[]) => showPath(["blueprints", ...owner, ...path]);
  if (network.mode === "allowlist" && network.allow.length === 0 && network.registries.length === 0) {
    yield {
      path: at("network", "allow"),
      problem: "names nothing, so nothing could be reached; name hosts, or set network.mode to none",
    };
  }
  if (network.mode === "none" && network.registries.length > 0) {
    yield {
      path: at("network", "registries"),
      problem: "means nothing with network.mode none; set that to allowlist or open, or remove this",
    };
  }
  if (network.mirrors.length > 0 && network.registries.length === 0) {
    yield {
      path: at("network", "mirrors"),
      problem: "means nothing without network.registries; add that, or remove this",
    };
  }
  for (const [index, { host, addresses = [] }] of network.mirrors.entries()) {
    if (parseHost(host) === null)
      yield { path: at("network", "mirrors", index, "host"), problem: `${JSON.stringify(host)} is no host` };
    for (const [place, text] of addresses.entries()) yield* rangeProblems(at("network", "mirrors", index), text, place);
  }
  const meansSomething = network.mode === "open" && network.allow.every(({ addresses }) => addresses !== undefined);
  if (network.mode !== "allowlist" && network.allow.length > 0 && !meansSomething) {
    yield {
      path: at("network", "allow"),
      problem: `means nothing with network.mode ${network.mode}; set that to allowlist, or remove this`,
    };
  }
  if (network.mode === "none" && network.secrets.length > 0) {
    yield {
      path: at("network", "secrets"),
      problem: "means nothing with network.mode none; set that to allowlist or open, or remove this",
    };
  } else yield* ruleProblems(at(), network);
}

function* rangeProblems(mirror: string, text: string, place: number): Generator<Problem> {
  try {
    namedRange(text, `addresses[${place}]`);
  } catch (error) {
    if (!isSandlotError(error, "config_invalid")) throw error;
    yield { path: `${mirror}.${error.details.path}`, problem: error.details.problem };
  }
}

/** Hosts, addresses and headers, as the proxy parses them. */
function* ruleProblems(blueprint: string, network: CompletedBlueprint["network"]): Generator<Problem> {
  try {
    compilePolicy({ mode: network.mode, allow: network.allow, secrets: network.secrets });
  } catch (error) {
    if (!isSandlotError(error, "config_invalid")) throw error;
    const { path, problem } = error.details;
    yield { path: `${blueprint}.${path}`, problem };
  }
}

/** Sandbox paths are POSIX, independent of the host. */
function mountProblem(sandboxPath: string, seen: ReadonlySet<string>): string | undefined {
  if (sandboxPath.includes("\0")) return "must not contain a NUL byte";
  if (!posix.isAbsolute(sandboxPath)) return `must be an absolute path (it is ${JSON.stringify(sandboxPath)})`;
  const path = posix.resolve(sandboxPath);
  const hidden = RESERVED_PATHS.find((reserved) => isWithin(path, reserved) || isWithin(reserved, path));
  if (hidden !== undefined) return `would hide ${hidden}, which belongs to the thread; choose another place`;
  return seen.has(path) ? `is used by an earlier mount already (${path})` : undefined;
}
