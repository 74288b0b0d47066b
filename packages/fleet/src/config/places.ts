/**
 * The paths of a fleet's state, and the fleet id derived from them.
 *
 * Invariants
 * - Every resulting path is absolute. A relative one is refused instead of resolved: it would mean another fleet, with
 *   other sandboxes, whenever a process is started from another directory.
 * - The derived fleet id is the same for every spelling of one directory, also through symlinks, and does not change
 *   when the directory is created.
 */

import { createHash } from "node:crypto";
import { realpathSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { FleetId } from "@sandlot/contract";
import type { StoreContext } from "../store/entry.ts";
import { pathProblem, resolveHome } from "./home.ts";
import type { Problem } from "./problems.ts";
import { backendEntry, type Registry, storeEntry } from "./registry.ts";
import type { CompletedConfig } from "./schema.ts";
import type { Settings } from "./settings.ts";
import type { Environment } from "./variables.ts";

export interface Places {
  readonly home: string;
  readonly fleetId: FleetId;
  readonly store: Settings["store"];
}

/** Adds problems to `problems`; then the result must not be used. */
export function resolvePlaces(
  config: CompletedConfig,
  environment: Environment,
  problems: Problem[],
  registry: Registry,
): Places {
  const home = resolveHome(config.home, environment, problems);
  return {
    home,
    fleetId: resolveFleetId(config.fleetId, home),
    store: resolveStore(config, home, environment, problems, registry),
  };
}

function resolveStore(
  { store, backend, sessionLifetimeMs }: CompletedConfig,
  home: string,
  environment: Environment,
  problems: Problem[],
  registry: Registry,
): Settings["store"] {
  const { type, ...given } = store;
  const entry = storeEntry(registry, store);
  const tell: StoreContext["tell"] = (key, problem) => problems.push({ ...problem, path: `store.${key}` });
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || Object.hasOwn(entry.keys, key)) continue;
    const owners = Object.values(registry.stores).filter(({ keys }) => Object.hasOwn(keys, key));
    const types = owners.map(({ name }) => name).join(" or ");
    tell(key, { problem: `means nothing with the store type ${type}; remove it, or set store.type to ${types}` });
  }
  const checkPath = (text: string) => pathProblem(text, environment);
  // The entry of this type: its settings are among those of all stores.
  const context = { home, backend: backendEntry(registry, backend), sessionLifetimeMs, checkPath, tell };
  return entry.resolve(given, context) as Settings["store"];
}

function resolveFleetId(configured: string | undefined, home: string): FleetId {
  // The schema has checked it.
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
