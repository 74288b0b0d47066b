/** The `memory` backend passes the suite of every backend. */

import type { FleetId } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import type { Blueprint } from "../../src/backend/blueprint.ts";
import { createMemoryBackend } from "../../src/backends/memory/backend.ts";
import { MemoryEngine } from "../../src/backends/memory/engine.ts";
import { describeBackend } from "../../src/testing/backend-suite.ts";
import { systemWorld } from "../../src/world/system-world.ts";

const world = systemWorld();
const blueprint: Blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } };

describeBackend({
  name: "memory",
  tools: { describe, it, expect },
  blueprint,
  open: async () => {
    const engine = new MemoryEngine({ world });
    const fleetId = "fleet-one" as FleetId;
    const other = "fleet-two" as FleetId;
    return {
      fleetId,
      backend: createMemoryBackend({ fleetId, engine, world }),
      peer: async () => createMemoryBackend({ fleetId, engine, world }),
      stranger: async () => ({ fleetId: other, backend: createMemoryBackend({ fleetId: other, engine, world }) }),
      kill: async (ref) => engine.kill(ref),
      dispose: async () => expect(engine.objects()).toEqual([]),
    };
  },
});
