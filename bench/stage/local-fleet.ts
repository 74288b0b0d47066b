/**
 * A fleet on the local backend in a directory of its own, which goes with it.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FleetConfig } from "../../packages/fleet/src/config/fleet-config.ts";
import type { Fleet } from "../../packages/fleet/src/fleet.ts";
import { openFleet } from "../../packages/fleet/src/open-fleet.ts";

export interface LocalFleet extends AsyncDisposable {
  readonly fleet: Fleet;
  readonly home: string;
}

export async function openLocalFleet(config: FleetConfig = {}): Promise<LocalFleet> {
  const home = mkdtempSync(join(tmpdir(), "sandlot-bench-"));
  const fleet = await openFleet({ backend: "local", home, ...config });
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
