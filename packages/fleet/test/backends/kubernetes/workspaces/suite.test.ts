/** Workspaces on a shared volume pass the suite of every backend: the cases about workspaces, without a cluster. */

import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { FleetId } from "@sandlot/contract";
import { afterAll, describe, expect, it } from "vitest";
import type { Blueprint } from "../../../../src/backend/blueprint.ts";
import { BackendStage } from "../../../../src/testing/backend-suite/stage.ts";
import { workspaceCases } from "../../../../src/testing/backend-suite/workspaces.ts";
import { createDiskBackend, type FakeEngine } from "../../../host/workspaces/disk-backend.ts";
import { type MarkerTable, podDirectories } from "./pod-directories.ts";
import { VolumeGround } from "./volume-ground.ts";

const blueprint: Blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } };
const fleetId = "fleet" as FleetId;

describe("the suite's cases about workspaces, on a shared volume", () => {
  // One volume and two gateways for all cases: starting the process of a volume takes longer than a case.
  const ground = new VolumeGround();
  const scratch = join(ground.root, "scratch");
  const engine: FakeEngine = new Map();
  const table: MarkerTable = new Map();
  const gateways = [podDirectories(ground.root, table), podDirectories(ground.root, table)];
  const [backend, peer] = gateways.map((one) => ({
    ...createDiskBackend(engine, fleetId, one, scratch),
    close: async () => {},
  }));
  afterAll(async () => {
    await Promise.all(gateways.map((workspaces) => workspaces.close()));
    ground.dispose();
  });

  for (const one of workspaceCases) {
    it(one.name, async () => {
      if (backend === undefined || peer === undefined) throw new Error("two gateways were opened");
      const harness = {
        ...{ fleetId, backend, peer: async () => peer },
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
      const names = (area: string) => readdirSync(join(ground.root, "fleet", area));
      expect([names("s"), names("released"), names("trash"), names("new")]).toEqual([[], [], [], []]);
      expect([...table.keys()], "markers").toEqual([]);
    });
  }
});
