/** A fleet on the local backend in its own temporary directory. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLocalBackend } from "../../packages/fleet/src/backends/local/backend.ts";
import type { FleetConfig } from "../../packages/fleet/src/config/fleet-config.ts";
import { resolveSettings } from "../../packages/fleet/src/config/resolve-settings.ts";
import type { Fleet } from "../../packages/fleet/src/fleet.ts";
import { assembleFleet, openFleet } from "../../packages/fleet/src/open-fleet.ts";
import { openSqliteStore } from "../../packages/fleet/src/store/sqlite/sqlite-store.ts";
import { systemWorld } from "../../packages/fleet/src/world/system-world.ts";

export interface LocalFleet extends AsyncDisposable {
  readonly fleet: Fleet;
  readonly home: string;
}

export async function openLocalFleet(config: FleetConfig = {}): Promise<LocalFleet> {
  const home = mkdtempSync(join(tmpdir(), "sandlot-bench-"));
  return goingWith(home, await openFleet({ backend: "local", home, ...config }));
}

/** The same with one account for all sandboxes, as in a fleet whose user namespace lacks the ids. */
export async function openSharedAccountFleet(): Promise<LocalFleet> {
  const home = mkdtempSync(join(tmpdir(), "sandlot-bench-"));
  const world = systemWorld();
  const settings = { ...resolveSettings({ backend: "local", home }, process.env), accountIds: NOT_THERE };
  if (settings.store.type !== "sqlite") throw new Error("The store is no file.");
  const store = await openSqliteStore({ path: settings.store.path, world });
  const backend = createLocalBackend({ settings, world });
  if (backend.capabilities.has("own-account")) throw new Error("Its sandboxes have an account each.");
  return goingWith(home, await assembleFleet({ settings, world, store, backend }));
}

/** Outside of every user namespace. */
const NOT_THERE = { first: 2 ** 32, count: 2 };

function goingWith(home: string, fleet: Fleet): LocalFleet {
  return {
    fleet,
    home,
    async [Symbol.asyncDispose]() {
      for (const { thread, user } of await fleet.list()) {
        if (thread !== null)
          await fleet.destroy(user === null ? { thread } : { thread, user }, { force: true, purge: true });
      }
      await fleet.close({ destroy: true });
      rmSync(home, { recursive: true, force: true });
    },
  };
}
