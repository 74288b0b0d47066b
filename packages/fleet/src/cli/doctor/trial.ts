/** A trial sandbox in a fleet and a home of its own, so that a running fleet does not see it. Nothing is left of it. */

import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { FleetId } from "@sandlot/contract";
import type { Trial } from "../../backend/entry.ts";
import type { Registry } from "../../config/registry.ts";
import type { Settings } from "../../config/settings.ts";
import { assembleFleet, openBackend } from "../../open-fleet.ts";
import { MemoryStore, newMemoryTables } from "../../store/memory/memory-store.ts";
import { systemWorld } from "../../world/system-world.ts";
import { nearestExisting } from "./host-findings.ts";

export function trialOf(settings: Settings, registry?: Registry): Trial {
  return async (use) => {
    const world = systemWorld();
    const home = mkdtempSync(join(nearestExisting(settings.home), ".sandlot-doctor-"));
    try {
      const fleetId = `doctor-${world.randomHex(4)}` as FleetId;
      const trial = { ...settings, home, fleetId, pool: {}, maxLifetimeMs: 0 };
      const backend = await openBackend(trial, world, registry);
      const store = new MemoryStore(newMemoryTables(world));
      const fleet = await assembleFleet({ settings: trial, world, store, backend });
      try {
        await using lease = await fleet.acquire({ purpose: "sandlot doctor" });
        await use(lease.sandbox);
      } finally {
        await fleet.close({ destroy: true });
      }
    } finally {
      rmSync(home, { recursive: true, force: true });
    }
  };
}
