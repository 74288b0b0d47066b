/** The object store while another instance removes its entries. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FleetId, Generation, SandboxId, Token } from "@sandlot/contract";
import { expect, it, onTestFinished } from "vitest";
import { type ObjectRecord, ObjectStore } from "../../../src/backends/local/objects/object-store.ts";
import { makeLayout } from "../../../src/host/layout.ts";
import { systemWorld } from "../../../src/world/system-world.ts";

const ROUNDS = 400;

it("an object kept only for its slot stays one or is gone: it never looks like a sandbox", async () => {
  const home = mkdtempSync(join(tmpdir(), "sl-objects-"));
  onTestFinished(() => rmSync(home, { recursive: true, force: true }));
  const { identity } = systemWorld();
  const layout = makeLayout(home, "fleet" as FleetId, home);
  const [one, other] = [new ObjectStore(layout, identity), new ObjectStore(layout, identity)];
  const seen = { remains: 0, gone: 0, sandbox: 0 };
  for (let round = 0; round < ROUNDS; round++) {
    const [sandboxId, generation] = [`sandbox${round}` as SandboxId, 1 as Generation];
    const record: ObjectRecord = {
      labels: { fleet: "fleet" as FleetId, sandboxId, generation, threadKey: null, blueprintHash: "hash" as never },
      place: `slot:${sandboxId}-1`,
      credentials: { generation, token: "token" as Token },
      limits: {},
      isolation: "unsafe-process",
      mounts: [],
      account: null,
      machineId: "machine",
      maker: identity,
    };
    const name = `${sandboxId}-${generation}`;
    await one.intend(name, record);
    await one.markRemains(name);
    const forgetting = one.forget(name);
    for (let isThere = true; isThere; ) {
      const object = await other.get(name);
      isThere = object !== null;
      seen[object === null ? "gone" : object.isRemains ? "remains" : "sandbox"] += 1;
    }
    await forgetting;
  }
  expect(seen).toEqual({ remains: expect.any(Number), gone: ROUNDS, sandbox: 0 });
});
