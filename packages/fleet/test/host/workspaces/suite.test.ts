/** Workspaces on a disk pass the suite of every backend: the cases about workspaces, without a sandbox. */

import { join } from "node:path";
import type { FleetId } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import { workspaceCases } from "../../../src/testing/backend-suite/workspaces.ts";
import { createDiskBackend, type FakeEngine } from "./disk-backend.ts";
import { Ground } from "./ground.ts";

const blueprint: Blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } };
const fleetId = "fleet" as FleetId;

describe("the suite's cases about workspaces", () => {
  for (const one of workspaceCases) {
    it(one.name, async () => {
      const ground = new Ground();
      const engine: FakeEngine = new Map();
      const backend = () => createDiskBackend(engine, fleetId, ground.peer(), join(ground.root, "scratch"));
      try {
        const harness = {
          ...{ fleetId, backend: backend(), peer: async () => backend() },
          stranger: () => Promise.reject(new Error("no case about workspaces asks for one")),
          kill: async () => {},
          dispose: async () => {},
        };
        const stage = new BackendStage(harness, blueprint, expect);
        try {
          await one.run(stage);
        } finally {
          await stage.clear();
        }
        expect(await stage.leftovers(), "what is still listed").toEqual([]);
        expect([ground.names("slots"), ground.names("markers"), ground.names("trash")]).toEqual([[], [], []]);
      } finally {
        ground.dispose();
      }
    });
  }
});
