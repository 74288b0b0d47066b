/**
 * Where a fleet keeps its state, and the name that follows from it.
 *
 * Invariants
 * - Every path that comes out is absolute. A relative one is refused instead of resolved: it would mean another fleet,
 *   with other sandboxes, whenever a process is started from another directory.
 * - The derived fleet id is the same for every spelling of one directory, through symlinks too, and does not change
 *   when the directory comes into being.
 */

import { createHash } from "node:crypto";
import { realpathSync, type Stats, statSync } from "node:fs";
import { userInfo } from "node:os";
import { basename, dirname, isAbsolute, join, resolve } from "node:path";
import type { FleetId } from "@sandlot/contract";
import { DEFAULTS } from "./defaults.ts";
import type { Problem } from "./problems.ts";
import type { CompletedConfig } from "./schema.ts";
import type { Settings } from "./settings.ts";
import type { Environment } from "./variables.ts";

export interface Places {
  readonly home: string;
  readonly fleetId: FleetId;
  readonly store: Settings["store"];
}

/** Problems are added to `problems`; then what is returned is not to be used. */
export function resolvePlaces(config: CompletedConfig, environment: Environment, problems: Problem[]): Places {
  const home = resolveHome(config.home, environment, problems);
  return {
    home,
    fleetId: resolveFleetId(config.fleetId, home),
    store: resolveStore(config, home, environment, problems),
  };
}

function resolveHome(configured: string | undefined, environment: Environment, problems: Problem[]): string {
  const [text, name] = configured === undefined ? [environment.SANDLOT_HOME, "$SANDLOT_HOME "] : [configured, ""];
  // An empty variable is an unset one, as shells have it.
  if (text === undefined || (configured === undefined && text === "")) return derivedHome(environment, problems);
  const wrong = pathProblem(text, environment);
  if (wrong !== undefined) problems.push({ ...wrong, path: "home", problem: `${name}${wrong.problem}` });
  else if (look(text)?.isDirectory() === false)
    problems.push({ path: "home", problem: `${name}must be a directory, but ${text} is a file` });
  return resolve(text);
}

/** The XDG specification says that a relative value is to be ignored. */
function derivedHome(environment: Environment, problems: Problem[]): string {
  const configured = environment.XDG_STATE_HOME;
  if (configured !== undefined && isAbsolute(configured)) return join(configured, "sandlot");
  const home = userHome(environment);
  if (home === null)
    problems.push({ path: "home", problem: "must be set: $HOME is no absolute path, and this user has no directory" });
  return join(home ?? "/", ".local", "state", "sandlot");
}

/** What the system says of this user, where the environment is of no use: a relative one would be another one elsewhere. */
function userHome(environment: Environment): string | null {
  if (environment.HOME !== undefined && isAbsolute(environment.HOME)) return environment.HOME;
  try {
    const { homedir } = userInfo();
    return isAbsolute(homedir) ? homedir : null;
  } catch {
    return null; // A number without an entry.
  }
}

function resolveStore(
  { store: { type, path }, backend }: CompletedConfig,
  home: string,
  environment: Environment,
  problems: Problem[],
): Settings["store"] {
  const tell = (problem: Omit<Problem, "path">) => problems.push({ ...problem, path: "store.path" });
  if (type === "memory") {
    if (path !== undefined)
      tell({ problem: "means nothing with the store type memory; remove it, or set store.type to sqlite" });
    return { type };
  }
  if (path === undefined) {
    const { fileName, memoryFileName } = DEFAULTS.store;
    return { type, path: checkedFile(join(home, backend === "memory" ? memoryFileName : fileName), home, tell) };
  }
  if (path === ":memory:") tell({ problem: "must be a file; for a store in memory set store.type to memory" });
  else {
    const wrong = pathProblem(path, environment);
    if (wrong !== undefined) tell(wrong);
    else checkedFile(path, home, tell);
  }
  return { type, path: resolve(path) };
}

function checkedFile(path: string, home: string, tell: (problem: Omit<Problem, "path">) => void): string {
  if (/[\\/]$/.test(path) || resolve(path) === home || look(path)?.isDirectory() === true) {
    tell({ problem: `must be a file, but ${path} is a directory`, suggestion: join(path, DEFAULTS.store.fileName) });
  }
  return path;
}

function resolveFleetId(configured: string | undefined, home: string): FleetId {
  // The schema has checked what was configured.
  if (configured !== undefined) return configured as FleetId;
  return `fleet-${createHash("sha256").update(canonical(home)).digest("hex").slice(0, 12)}` as FleetId;
}

/** The path with symlinks followed as far as it exists. */
function canonical(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(canonical(parent), basename(path));
  }
}

/** What is wrong with a path by itself. */
export function pathProblem(text: string, environment: Environment): Omit<Problem, "path"> | undefined {
  if (text.includes("\0")) return { problem: "must not contain a NUL byte" };
  if (isAbsolute(text)) return undefined;
  if (text === "") return { problem: "must be an absolute path, but is empty" };
  const [first, ...rest] = text.split("/");
  const suggestion = first === "~" ? join(userHome(environment) ?? "/", ...rest) : resolve(text);
  return { problem: `must be an absolute path (it is ${JSON.stringify(text)})`, suggestion };
}

/** What is there now. `undefined` when nothing is, or when it cannot be told: whoever opens it will say so. */
function look(path: string): Stats | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}
