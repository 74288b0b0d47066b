/**
 * Converts DeerFlow's `config.yaml` to a `sandlot.yaml`: its sections `sandbox`, `skills` and `uploads`, key by key.
 * Every key ends up in the configuration or in a note that says why not, so that nothing is lost in silence.
 *
 * DeerFlow takes a string that begins with `$` from its environment. In `environment` it stays a variable; elsewhere it
 * is resolved now.
 */

import { isAbsolute, resolve } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { parseDocument } from "yaml";
import { FLEET_ID_PATTERN } from "../../config/schema.ts";
import type { Environment } from "../../config/variables.ts";
import { DEERFLOW_KEYS, type Given, type KeyRule } from "./config-keys.ts";

export interface ImportNote {
  /** DeerFlow's name, such as `sandbox.port`. */
  readonly key: string;
  /** The result: another key of ours, none needed, or a decision for the operator. */
  readonly outcome: "changed" | "no-counterpart" | "unknown";
  readonly note: string;
}

export interface Imported {
  /** The content of `sandlot.yaml`. */
  readonly config: Readonly<Record<string, unknown>>;
  readonly notes: readonly ImportNote[];
}

type Plain = Record<string, unknown>;

/** `directory` is the file's: relative paths in it begin there. */
export function importDeerFlow(text: string, directory: string, environment: Environment): Imported {
  const document = parseDocument(text, { uniqueKeys: true });
  const [broken] = document.errors;
  if (broken !== undefined)
    throw new SandlotError("config_invalid", { path: "", problem: broken.message.replace(/\s+/g, " ").trim() });
  const whole = document.toJS() as unknown;
  if (!isPlain(whole)) throw new SandlotError("config_invalid", { path: "", problem: "it is no configuration" });
  const work = new Import(directory, environment);
  for (const section of ["sandbox", "skills", "uploads", "tools"] as const) {
    const given = whole[section];
    if (given === undefined || given === null) continue;
    if (section === "tools") work.tools(given);
    else if (isPlain(given)) work.section(section, given);
    else work.note(section, "unknown", "it is no map of keys");
  }
  return work.done();
}

class Import implements Given {
  readonly #config: Plain = {};
  readonly #notes: ImportNote[] = [];
  readonly #directory: string;
  readonly #environment: Environment;

  constructor(directory: string, environment: Environment) {
    this.#directory = directory;
    this.#environment = environment;
  }

  section(name: string, given: Plain): void {
    for (const [key, raw] of Object.entries(flattened(given))) {
      const path = `${name}.${key}`;
      const rule: KeyRule | undefined = DEERFLOW_KEYS[path];
      if (rule === undefined)
        this.note(path, "unknown", "it is no key that DeerFlow describes; nothing was made of it");
      else {
        const value = this.#resolved(path, raw);
        if (value !== null && value !== undefined) rule(this, value, path, given);
      }
    }
  }

  /** Only limits of results are there; the agent decides which tools exist. */
  tools(given: unknown): void {
    for (const tool of Array.isArray(given) ? given : []) {
      if (!isPlain(tool) || tool.max_results === undefined) continue;
      const key = `tools.${String(tool.name)}.max_results`;
      this.note(key, "no-counterpart", "tools have fixed limits; a call may ask for fewer results");
    }
  }

  set(path: string, value: unknown): void {
    const names = path.split(".");
    let at: Plain = this.#config;
    for (const name of names.slice(0, -1)) {
      const there = at[name];
      const next = isPlain(there) ? there : {};
      at[name] = next;
      at = next;
    }
    at[names.at(-1) ?? ""] = value;
  }

  note(key: string, outcome: ImportNote["outcome"], note: string): void {
    this.#notes.push({ key, outcome, note });
  }

  path(key: string, path: string): string {
    if (isAbsolute(path)) return path;
    const absolute = resolve(this.#directory, path);
    this.note(key, "changed", `${path} is taken from where the file is: ${absolute}`);
    return absolute;
  }

  fleetId(key: string, prefix: string): void {
    const id = prefix.toLowerCase().replaceAll("_", "-");
    if (FLEET_ID_PATTERN.test(id)) this.set("fleetId", id);
    else this.note(key, "no-counterpart", `${prefix} cannot be a fleetId; the default is made from \`home\``);
  }

  done(): Imported {
    return { config: this.#config, notes: this.#notes };
  }

  /** Variables of an environment map stay variables; anything else is resolved. */
  #resolved(path: string, raw: unknown): unknown {
    if (typeof raw !== "string" || !raw.startsWith("$") || path.startsWith("sandbox.environment")) return raw;
    const name = raw.slice(1);
    const value = this.#environment[name];
    if (value === undefined) {
      this.note(path, "unknown", `$${name} is not set here; set it and import again, or write the value yourself`);
      return null;
    }
    this.note(path, "changed", `the value of $${name} was written out`);
    return value;
  }
}

/** `ownership: { type }` becomes `ownership.type`. Lists and the environment stay whole. */
function flattened(given: Plain): Plain {
  const { ownership, ...rest } = given;
  if (!isPlain(ownership)) return given;
  return {
    ...rest,
    ...Object.fromEntries(Object.entries(ownership).map(([key, value]) => [`ownership.${key}`, value])),
  };
}

function isPlain(value: unknown): value is Plain {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
