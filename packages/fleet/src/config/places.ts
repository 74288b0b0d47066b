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
import { realpathSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import type { FleetId } from "@sandlot/contract";
import { DEFAULTS } from "./defaults.ts";
import { look, pathProblem, resolveHome } from "./home.ts";
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
