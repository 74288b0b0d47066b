/**
 * A gateway that is paused before any of its calls, and goes on when another one has long taken over, changes nothing: the
 * names that it knew are gone. And a rename whose answer was lost is settled without a repetition.
 */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { WorkspaceSpot } from "../../../../src/backend/backend.ts";
import { ensureBound, settleWorkspace } from "../../../../src/backend/workspace-binding.ts";
import type { VolumeWorkspaces } from "../../../../src/backends/kubernetes/workspaces/volume/volume-workspaces.ts";
import type { Owner } from "../../../../src/host/workspaces/homes.ts";
import { loseRename, pauseBefore, watchCalls } from "./call-point.ts";
import { SCENARIOS } from "./scenarios.ts";
import { NOTE, outcomeOf, VolumeGround } from "./volume-ground.ts";

let stopWatching = () => {};
beforeAll(() => {
  stopWatching = watchCalls();
});
afterAll(() => stopWatching());

const CALLS_MAX = 400;
/** What a gateway that comes too late may be told; also that it was in time. */
const HARMLESS = [
  "existing",
  "new",
  undefined,
  "stale_generation",
  "file_not_found",
  "file_exists",
  "workspace_conflict",
  "sandbox_in_use",
  "engine_unavailable",
];

interface Replay {
  prepare(ground: VolumeGround, key: Owner): Promise<WorkspaceSpot>;
  /** The work of the gateway that is paused. */
  act(workspaces: VolumeWorkspaces, spot: WorkspaceSpot): Promise<unknown>;
  /** What another gateway does to end that generation, as the store would have it. */
  end(workspaces: VolumeWorkspaces, spot: WorkspaceSpot): Promise<void>;
}

const settled = async (workspaces: VolumeWorkspaces, spot: WorkspaceSpot) => {
  await workspaces.release(spot.place);
  await settleWorkspace(workspaces, spot, false);
};
const spotAtHome = async (ground: VolumeGround, key: Owner): Promise<WorkspaceSpot> => {
  const { generation, sandboxId } = ground.marker(key);
  return { ...key, generation, sandboxId, place: "home" };
};

const REPLAYS: Readonly<Record<string, Replay>> = {
  "binding an existing workspace": {
    async prepare(ground, key) {
      await ground.homeWith(key, "mine");
      return (await ground.slotFor(key)).spot;
    },
    act: (workspaces, spot) => ensureBound(workspaces, spot),
    end: settled,
  },
  "binding a new workspace": {
    prepare: async (ground, key) => (await ground.slotFor(key)).spot,
    act: (workspaces, spot) => ensureBound(workspaces, spot),
    end: settled,
  },
  "bringing a workspace home": {
    async prepare(ground, key) {
      const { spot } = await ground.boundWith(key, "mine");
      await ground.workspaces.release(spot.place);
      return spot;
    },
    act: (workspaces, spot) => settleWorkspace(workspaces, spot, false),
    end: settled,
  },
  "making a thread's own sandbox": {
    async prepare(ground, key) {
      await ground.homeWith(key, "mine");
      return spotAtHome(ground, key);
    },
    act: (workspaces, spot) => workspaces.fence(spot, spot),
    end: async () => {},
  },
  "making a thread's first sandbox": {
    prepare: spotAtHome,
    act: (workspaces, spot) => workspaces.fence(spot, spot),
    end: async () => {},
  },
  "purging a workspace at home": {
    async prepare(ground, key) {
      await ground.homeWith(key, "mine");
      return spotAtHome(ground, key);
    },
    act: (workspaces, spot) => settleWorkspace(workspaces, spot, true),
    end: (workspaces, spot) => settleWorkspace(workspaces, spot, true),
  },
  "purging a workspace in a slot": {
    async prepare(ground, key) {
      const { spot } = await ground.boundWith(key, "mine");
      await ground.workspaces.release(spot.place);
      return spot;
    },
    act: (workspaces, spot) => settleWorkspace(workspaces, spot, true),
    end: async (workspaces, spot) => {
      await settleWorkspace(workspaces, spot, true);
      await workspaces.release(spot.place);
    },
  },
};

describe.each(Object.entries(REPLAYS))("a gateway paused while %s", (_, replay) => {
  it.each(["in its own sandbox", "in a blank"] as const)(
    "changes nothing of what a later one has %s",
    async (where) => {
      let call = 0;
      for (let isOver = false; !isOver; ) {
        call++;
        expect(call).toBeLessThan(CALLS_MAX);
        const ground = await VolumeGround.open();
        try {
          const key = ground.newKey();
          const spot = await replay.prepare(ground, key);
          const paused = pauseBefore(call, () => outcomeOf(replay.act(ground.peer(), spot)));
          isOver = (await paused.reached) === "ended";
          await replay.end(ground.workspaces, spot);
          const later = await laterUse(ground, key, where);
          paused.resume();
          expect(HARMLESS, `paused before call ${call}`).toContain(await paused.outcome);
          expect(await ground.workspaces.look(later), `before call ${call}`).toEqual({
            ...(where === "in a blank" ? { home: false, slot: true } : { home: true, slot: false }),
            stale: false,
          });
          expect(ground.notes(), `paused before call ${call}`).toEqual(["later"]);
          expect(await ground.note(key)).toBe("later");
          expect((await ground.workspaces.look(spot)).stale).toBe(true);
        } finally {
          ground.dispose();
        }
      }
      expect(call).toBeGreaterThan(5);
    },
  );
});

it("a purge is a fence, too: an older generation moves, makes and empties nothing afterwards", async () => {
  const ground = await VolumeGround.open();
  try {
    const key = ground.newKey();
    const { spot } = await ground.slotFor(key);
    const atHome = await spotAtHome(ground, key);
    await ground.homeWith(key, "purged");
    await ground.workspaces.purge(await spotAtHome(ground, key));
    const { workspaces } = ground;
    const late = [
      () => workspaces.moveIn(spot),
      () => workspaces.makeIn(spot),
      () => workspaces.fence(key, atHome),
      () => workspaces.purge(spot),
      () => workspaces.emptyHome(atHome),
    ];
    for (const step of late) expect(await outcomeOf(step())).toBe("stale_generation");
    expect([await ground.note(key), ground.notes()]).toEqual([null, []]);
  } finally {
    ground.dispose();
  }
});

it("the kept home is emptied, and a gateway that was paused empties no later one", async () => {
  for (let call = 1, isOver = false; !isOver; call++) {
    expect(call).toBeLessThan(CALLS_MAX);
    const ground = await VolumeGround.open();
    try {
      const key = ground.newKey();
      const spot = await spotAtHome(ground, key);
      await ground.workspaces.fence(key, spot);
      const note = () => join(ground.homePath(key), ".home", "note");
      writeFileSync(note(), "before");
      const paused = pauseBefore(call, () => outcomeOf(ground.peer().emptyHome(spot)));
      isOver = (await paused.reached) === "ended";
      await ground.workspaces.emptyHome(spot);
      expect(ground.notes()).toEqual([]);
      await ground.workspaces.fence(key, await spotAtHome(ground, key));
      writeFileSync(note(), "later");
      paused.resume();
      expect(HARMLESS).toContain(await paused.outcome);
      expect(ground.notes(), `paused before call ${call}`).toEqual(["later"]);
    } finally {
      ground.dispose();
    }
  }
});

/** A later generation uses the thread, and writes its own note over what it found. */
async function laterUse(ground: VolumeGround, key: Owner, where: string): Promise<WorkspaceSpot> {
  if (where === "in a blank") {
    const { spot, mnt } = await ground.slotFor(key);
    await ensureBound(ground.workspaces, spot);
    writeFileSync(join(mnt, "user-data", NOTE), "later");
    return spot;
  }
  const spot = await spotAtHome(ground, key);
  await ground.workspaces.fence(key, spot);
  writeFileSync(join(ground.homePath(key), NOTE), "later");
  return spot;
}

describe("a write without a sandbox that is paused before any call", () => {
  it.each([
    ["a sandbox is made", "fresh", "in its own sandbox"],
    ["a blank is bound", "fresh", "in a blank"],
    ["a sandbox is made after a purge", "purged", "in its own sandbox"],
    ["a blank is bound after a purge", "purged", "in a blank"],
  ])("is in the workspace that the thread has when %s meanwhile", async (_, before, where) => {
    let call = 0;
    for (let isOver = false; !isOver; ) {
      call++;
      expect(call).toBeLessThan(CALLS_MAX);
      const ground = await VolumeGround.open();
      try {
        const key = ground.newKey();
        if (before === "purged") {
          await ground.homeWith(key, "purged");
          await ground.workspaces.purge(await spotAtHome(ground, key));
        }
        const upload = async () => {
          const handle = await ground.peer().locate(key, { make: true });
          await handle?.files.write("uploads/note", "upload");
          handle?.close();
        };
        const paused = pauseBefore(call, upload);
        isOver = (await paused.reached) === "ended";
        await laterUse(ground, key, where);
        paused.resume();
        await paused.outcome;
        expect(ground.notes(), `paused before call ${call}`).toEqual(["later", "upload"]);
        const handle = await ground.workspaces.locate(key);
        const read = async (path: string) => Buffer.from((await handle?.files.read(path)) ?? "").toString();
        expect([await read(NOTE), await read("uploads/note")], `call ${call}`).toEqual(["later", "upload"]);
        handle?.close();
      } finally {
        ground.dispose();
      }
    }
    expect(call).toBeGreaterThan(5);
  });
});

describe.each(Object.entries(SCENARIOS))("%s", (_, scenario) => {
  it("although the answer of any rename is lost", async () => {
    let count = 0;
    for (let isLost = true; isLost; ) {
      count++;
      const ground = await VolumeGround.open();
      try {
        const matter = await scenario.prepare(ground, ground.newKey());
        isLost = await loseRename(count, () => scenario.act(ground.workspaces, matter));
        const about = `rename ${count}`;
        expect(await ground.workspaces.look(matter.spot), about).toMatchObject(scenario.sight);
        expect(await ground.note(matter.key), about).toBe(scenario.note);
        expect(ground.notes(), about).toEqual([...(scenario.notesAfter ?? scenario.notes)]);
      } finally {
        ground.dispose();
      }
    }
    expect(count).toBeGreaterThan(1);
  });
});
