/**
 * A real fleet on the real clock, with the instant backend. Its loops start, but their intervals are longer than a
 * benchmark, so that none runs during a measurement.
 */

import { tmpdir } from "node:os";
import { assembleFleet } from "../../packages/fleet/src/assemble-fleet.ts";
import type { Backend } from "../../packages/fleet/src/backend/backend.ts";
import type { FleetConfig } from "../../packages/fleet/src/config/fleet-config.ts";
import { resolveSettings } from "../../packages/fleet/src/config/resolve-settings.ts";
import type { Fleet } from "../../packages/fleet/src/fleet.ts";
import { MemoryStore, newMemoryTables } from "../../packages/fleet/src/store/memory/memory-store.ts";
import type { Store } from "../../packages/fleet/src/store/store.ts";
import { systemWorld } from "../../packages/fleet/src/world/system-world.ts";
import type { World } from "../../packages/fleet/src/world/world.ts";
import { InstantBackend } from "./instant-backend.ts";

const HOUR_MS = 3_600_000;

export interface Opening {
  readonly store?: Store;
  readonly world?: World;
  readonly leakDetection?: FleetConfig["leakDetection"];
  readonly limits?: FleetConfig["limits"];
}

export function openBenchFleet(opening: Opening = {}): Promise<Fleet> {
  const world = opening.world ?? systemWorld();
  const settings = resolveSettings(
    {
      // Nothing is written there: the store is given, and the backend has no files.
      home: tmpdir(),
      backend: "memory",
      sessionLifetimeMs: 4 * HOUR_MS,
      housekeepingIntervalMs: HOUR_MS,
      orphanTimeoutMs: 4 * HOUR_MS,
      limits: { max: 1_000_000, ...opening.limits },
      leakDetection: opening.leakDetection,
    },
    {},
  );
  const store = opening.store ?? new MemoryStore(newMemoryTables(world));
  return assembleFleet({ settings, world, store, backend: new InstantBackend() });
}

/** The same with loops at their default intervals. Nothing idles long enough to be ended. */
export function openRestingFleet(opening: { store: Store; world: World; backend: Backend }): Promise<Fleet> {
  const config = { home: tmpdir(), backend: "memory", idleTimeoutMs: HOUR_MS, limits: { max: 1_000_000 } } as const;
  return assembleFleet({ settings: resolveSettings(config, {}), ...opening });
}
