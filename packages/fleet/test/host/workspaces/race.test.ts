/**
 * Several processes at the same workspaces at the same time.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import type { WorkspaceSpot } from "../../../src/backend/backend.ts";
import { ensureBound, settleWorkspace } from "../../../src/backend/workspace-binding.ts";
import { Ground, outcomeOf } from "./ground.ts";

const CHILD = fileURLToPath(new URL("./race-child.ts", import.meta.url));
const ROUNDS = 150;

async function race(ground: Ground, spots: readonly (readonly { spot: WorkspaceSpot }[])[]): Promise<unknown[][][]> {
  const { NODE_EXTRA_CA_CERTS: _, ...env } = process.env;
  const children = spots.map((matters) => {
    const args = ["--conditions=sandlot-source", CHILD, ground.root, JSON.stringify(matters)];
    return spawn(process.execPath, args, { env, stdio: ["pipe", "pipe", "inherit"] });
  });
  try {
    for (const child of children) child.stdin.write("go\n");
    const outputs = children.map(async (child) => {
      const parts: Buffer[] = [];
      child.stdout.on("data", (part: Buffer) => parts.push(part));
      await once(child, "close");
      return JSON.parse(Buffer.concat(parts).toString()) as unknown[][];
    });
    return await Promise.all(outputs);
  } finally {
    for (const child of children) child.kill("SIGKILL");
  }
}

it("two processes that bind and settle one spot: it is bound, goes home, and nothing is lost", {
  timeout: 300_000,
}, async () => {
  const ground = Ground.fast();
  try {
    const keys = Array.from({ length: ROUNDS }, () => ground.newKey());
    const matters: { spot: WorkspaceSpot }[] = [];
    for (const [index, key] of keys.entries()) {
      if (index % 2 === 0) await ground.homeWith(key, `note of ${key.thread}`);
      matters.push({ spot: (await ground.slotFor(key)).spot });
    }
    const outcomes = (await race(ground, [matters, matters])).flat(2);
    // A process that comes after the other has dropped the slot finds no slot; everything else is as if it were alone.
    const expected = ["existing", "new", "dropped", "occupied", "settled", "file_not_found"];
    expect([...new Set(outcomes)].filter((one) => !expected.includes(String(one)))).toEqual([]);
    for (const [index, { spot }] of matters.entries()) {
      await settleWorkspace(ground.workspaces, spot, false);
      expect(await ground.note(spot), `round ${index}`).toBe(index % 2 === 0 ? `note of ${spot.thread}` : "");
    }
    expect([ground.names("slots"), ground.names("quarantine"), ground.names("markers")]).toEqual([[], [], []]);
    expect(ground.notes().length).toBe(ROUNDS / 2);
  } finally {
    ground.dispose();
  }
});

it("two generations of one thread race for it: one has it, the other is refused", { timeout: 300_000 }, async () => {
  const ground = Ground.fast();
  try {
    const older: { spot: WorkspaceSpot }[] = [];
    const newer: { spot: WorkspaceSpot }[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const key = ground.newKey();
      await ground.homeWith(key, "mine");
      older.push({ spot: (await ground.slotFor(key)).spot });
      newer.push({ spot: (await ground.slotFor(key)).spot });
    }
    await race(ground, [older, newer]);
    for (const [round, { spot }] of older.entries()) {
      const later = newer[round]?.spot as WorkspaceSpot;
      for (const one of [spot, later]) {
        await ground.workspaces.dropSlot(one.place);
        await settleWorkspace(ground.workspaces, one, false);
      }
      expect((await ground.workspaces.look(later)).stale).toBe(false);
      expect(await outcomeOf(ground.workspaces.moveIn(spot))).toMatch(/^(stale_generation|file_not_found)$/);
    }
    // Each thread's data exists once: at home, or set aside, where the older process had it when the newer one began
    // anew.
    expect(ground.notes()).toEqual(Array.from({ length: ROUNDS }, () => "mine"));
    expect(ground.names("slots")).toEqual([]);
  } finally {
    ground.dispose();
  }
});

it("two threads race for one slot: one gets it, the other keeps its home", async () => {
  const ground = Ground.fast();
  try {
    for (let round = 0; round < 20; round++) {
      const [one, two] = [ground.newKey(), ground.newKey()];
      await ground.homeWith(one, "one");
      await ground.homeWith(two, "two");
      const { spot } = await ground.slotFor(one);
      const spots = [spot, { ...spot, ...two, generation: ground.nextGeneration() }];
      const peers = [ground.workspaces, ground.peer()];
      const outcomes = await Promise.all(
        spots.map((each, index) => outcomeOf(ensureBound(peers[index] ?? ground.workspaces, each))),
      );
      expect(outcomes.toSorted()).toEqual(["existing", "file_exists"]);
      expect([await ground.note(one), await ground.note(two)]).toEqual(["one", "two"]);
      writeFileSync(join(ground.root, "round"), String(round));
    }
  } finally {
    ground.dispose();
  }
});
