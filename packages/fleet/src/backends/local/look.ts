/**
 * The sandboxes of this machine, listed by any process from the directory of objects, without a backend. It changes and
 * cleans up nothing.
 */

import { tmpdir } from "node:os";
import type { Backend } from "../../backend/backend.ts";
import type { FleetFacts } from "../../backend/entry.ts";
import { makeLayout } from "../../host/layout.ts";
import { machineId } from "../../host/process-table.ts";
import type { World } from "../../world/world.ts";
import { ObjectLiveness } from "./objects/object-liveness.ts";
import { ObjectStore } from "./objects/object-store.ts";

/** Capabilities of bubblewrap's sandboxes on every machine. */
const ALWAYS: Backend["capabilities"] = new Set(["limits", "mounts", "network"]);

export function lookAtObjects(
  { home, fleetId }: Pick<FleetFacts, "home" | "fleetId">,
  world: World,
): Pick<Backend, "list" | "capabilities"> {
  const layout = makeLayout(home, fleetId, process.env.XDG_RUNTIME_DIR ?? tmpdir());
  const objects = new ObjectStore(layout, world.identity);
  const liveness = new ObjectLiveness(layout, world, machineId());
  return {
    capabilities: ALWAYS,
    async list() {
      const found = await Promise.all((await objects.names()).map((name) => objects.get(name)));
      return found
        .filter((object) => object !== null)
        .map((object) => {
          const { labels, place } = object.record;
          return { ref: object.ref, labels, liveness: liveness.of(object), place };
        });
    },
  };
}
