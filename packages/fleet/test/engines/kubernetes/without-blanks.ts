/** The cases of the backend suite that need blanks: with a claim for each thread nothing can be mounted late. */

import type { BackendDeviation, BackendStage } from "../../../src/testing/backend-suite.ts";

const NOTE = "/mnt/user-data/workspace/note";

async function noBlank(stage: BackendStage): Promise<void> {
  stage.expect(stage.backend.capabilities.has("late-binding")).toBe(false);
  await stage.rejects(stage.make(null), "capability_missing");
}

/** The next generation mounts the same claim, and an older one cannot run any more. */
async function handedOver(stage: BackendStage): Promise<void> {
  const key = stage.newKey();
  const old = stage.nextGeneration();
  await stage.homeWith(key, NOTE, "mine");
  const next = await stage.make(key);
  stage.expect(next.created.workspace).toBe("existing");
  const { sandbox } = await stage.attach(next.target);
  stage.expect((await sandbox.exec(`cat ${NOTE}`)).stdout).toBe("mine");
  await stage.rejects(stage.make(key, { generation: old }), "stale_generation");
  stage.expect((await sandbox.exec(`cat ${NOTE}`)).stdout).toBe("mine");
}

async function purged(stage: BackendStage): Promise<void> {
  const key = stage.newKey();
  const made = await stage.make(key);
  await stage.destroy(made);
  stage.expect((await stage.backend.workspaces.look(stage.spot(made, key))).home).toBe(true);
  for (let round = 0; round < 2; round++) await stage.backend.workspaces.purge(stage.spot(made, key));
  stage.expect(await stage.backend.workspaces.look(stage.spot(made, key))).toMatchObject({ home: false, slot: false });
}

const CASES: Readonly<Record<string, (stage: BackendStage) => Promise<void>>> = {
  "lifecycle: what is made is listed at once, with its labels and its place": noBlank,
  "workspaces: a blank has a slot of its own and no workspace": noBlank,
  "workspaces: moveIn brings a home into a blank that runs": handedOver,
  "workspaces: makeIn makes an empty workspace in a blank that runs": noBlank,
  "workspaces: a step that does not fit says so and changes nothing": noBlank,
  "workspaces: a destroyed sandbox with a workspace in its slot stays listed as dead until that has moved home":
    noBlank,
  "workspaces: another sandbox in the same generation reaches nothing of the workspace": noBlank,
  "workspaces: what an older generation has in its slot is put into quarantine, and home is left alone": noBlank,
  "workspaces: an older generation moves, makes and purges nothing": handedOver,
  "workspaces: the generation that used a workspace last may use it again, and so may a later one": handedOver,
  "workspaces: purge removes a workspace at home and in a slot, and once more is fine": purged,
  "workspaces: a thread's sandbox has its marker from the first moment": noBlank,
  "workspaces: markers are kept per generation and dropped one by one": noBlank,
  "workspaces: a marker is never written over by another of its generation": noBlank,
  "workspaces: ensureBound and settleWorkspace bring it in and home, however often they run": noBlank,
};

export const withoutBlanks: Readonly<Record<string, BackendDeviation>> = Object.fromEntries(
  Object.entries(CASES).map(([name, instead]) => [name, { reason: "a claim cannot be mounted into a blank", instead }]),
);
