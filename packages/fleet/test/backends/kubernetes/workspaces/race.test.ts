/** Several gateways work on the same threads of a shared volume at once, without any lock between them. */

import { expect, it } from "vitest";
import type { WorkspaceSpot } from "../../../../src/backend/backend.ts";
import { ensureBound, settleWorkspace } from "../../../../src/backend/workspace-binding.ts";
import { outcomeOf, VolumeGround } from "./volume-ground.ts";

const ROUNDS = 60;

it("binding and settling by three gateways at once has one effect", async () => {
  const ground = await VolumeGround.open();
  const gateways = [ground.peer(), ground.peer(), ground.peer()];
  try {
    for (let round = 0; round < ROUNDS; round++) {
      const key = ground.newKey();
      const hasHome = round % 2 === 0;
      if (hasHome) await ground.homeWith(key, "mine");
      const { spot } = await ground.slotFor(key);
      const bound = await Promise.all(gateways.map((gateway) => outcomeOf(ensureBound(gateway, spot))));
      for (const outcome of bound) expect(["existing", "new"]).toContain(outcome);
      expect(await ground.workspaces.look(spot)).toEqual({ home: false, slot: true, stale: false });
      const released = await Promise.all(gateways.map((gateway) => gateway.release(spot.place)));
      expect(released).toEqual(["occupied", "occupied", "occupied"]);
      const settled = await Promise.all(gateways.map((gateway) => outcomeOf(settleWorkspace(gateway, spot, false))));
      expect(settled).toEqual([undefined, undefined, undefined]);
      expect(await ground.note(key)).toBe(hasHome ? "mine" : "");
    }
    expect([ground.names("slots"), ground.names("released"), ground.names("quarantine")]).toEqual([[], [], []]);
    expect(ground.notes().length).toBe(ROUNDS / 2);
  } finally {
    ground.dispose();
  }
});

it("binding against the end of the sandbox: the workspace is at home or waits, and is never lost", async () => {
  const ground = await VolumeGround.open();
  try {
    for (let round = 0; round < ROUNDS; round++) {
      const key = ground.newKey();
      await ground.homeWith(key, "mine");
      const { spot } = await ground.slotFor(key);
      const [, released] = await Promise.all([
        outcomeOf(ensureBound(ground.peer(), spot)),
        ground.peer().release(spot.place),
      ]);
      await settleWorkspace(ground.workspaces, spot, false);
      expect([await ground.note(key), ground.names("quarantine")], released).toEqual(["mine", []]);
      expect(await ground.workspaces.look(spot)).toEqual({ home: true, slot: false, stale: false });
    }
    expect([ground.names("slots"), ground.names("released")]).toEqual([[], []]);
  } finally {
    ground.dispose();
  }
});

it("two threads race for one slot: one gets it, the other keeps its home", async () => {
  const ground = await VolumeGround.open();
  try {
    for (let round = 0; round < ROUNDS; round++) {
      const [one, two] = [ground.newKey(), ground.newKey()];
      await ground.homeWith(one, "one");
      await ground.homeWith(two, "two");
      const { spot } = await ground.slotFor(one);
      const spots: WorkspaceSpot[] = [spot, { ...spot, ...two, generation: ground.nextGeneration() }];
      const outcomes = await Promise.all(spots.map((each) => outcomeOf(ensureBound(ground.peer(), each))));
      expect(outcomes.toSorted()).toEqual(["existing", "file_exists"]);
      expect([await ground.note(one), await ground.note(two)]).toEqual(["one", "two"]);
    }
  } finally {
    ground.dispose();
  }
});

it("uploads of several gateways to a thread that is being bound are all in its workspace", async () => {
  const ground = await VolumeGround.open();
  try {
    for (let round = 0; round < ROUNDS; round++) {
      const key = ground.newKey();
      const { spot } = await ground.slotFor(key);
      const upload = async (name: string) => {
        const handle = await ground.peer().locate(key, { make: true });
        await handle?.files.write(`uploads/${name}`, name);
        handle?.close();
      };
      const bind = outcomeOf(ensureBound(ground.peer(), spot));
      await Promise.all([upload("a"), bind, upload("b")]);
      expect(["existing", "new"]).toContain(await bind);
      const handle = await ground.workspaces.locate(key);
      const names = (await handle?.files.list("uploads"))?.entries.map(({ path }) => path);
      handle?.close();
      expect(names, `round ${round}`).toEqual(["uploads/a", "uploads/b"]);
      expect(await ground.workspaces.look(spot)).toEqual({ home: false, slot: true, stale: false });
    }
    expect(ground.names("quarantine")).toEqual([]);
  } finally {
    ground.dispose();
  }
});
