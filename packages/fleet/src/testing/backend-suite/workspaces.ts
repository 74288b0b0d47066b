/** Workspaces: what outlives a sandbox, and how it moves into a blank and home again. */

import { isSandlotError, WORKSPACE_DIRECTORIES } from "@sandlot/contract";
import type { WorkspaceSight } from "../../backend/backend.ts";
import { ensureBound, settleWorkspace } from "../../backend/workspace-binding.ts";
import type { BackendCase, BackendStage, Key, Made } from "./stage.ts";

const NOTE = "/mnt/user-data/workspace/note";

export const workspaceCases: readonly BackendCase[] = [
  {
    name: "a thread's sandbox has its workspace at home, new at first and existing then",
    run: async (stage) => {
      const key = stage.newKey();
      const first = await stage.make(key);
      stage.expect([first.created.place, first.created.workspace]).toEqual(["home", "new"]);
      await stage.destroy(first);
      const second = await stage.make(key);
      stage.expect([second.created.place, second.created.workspace]).toEqual(["home", "existing"]);
    },
  },
  {
    name: "the directories of a workspace exist and can be written",
    run: async (stage) => {
      const sandbox = await stage.sandbox();
      for (const name of WORKSPACE_DIRECTORIES) {
        stage.expect((await sandbox.files.stat(`/mnt/user-data/${name}`)).kind).toBe("directory");
        const { exitCode } = await sandbox.exec(`echo x > /mnt/user-data/${name}/file`);
        stage.expect(exitCode).toBe(0);
      }
    },
  },
  {
    name: "the workspace survives its sandbox, everything else does not",
    run: async (stage) => {
      const key = stage.newKey();
      const first = await stage.make(key);
      const { sandbox } = await stage.attach(first.target);
      await sandbox.exec("echo kept > note; echo gone > /tmp/note; chmod 755 note");
      await stage.destroy(first);
      const next = await stage.sandbox(key);
      stage.expect(await next.files.readText(NOTE)).toBe("kept\n");
      stage.expect((await next.files.stat(NOTE)).mode).toBe(0o755);
      await stage.rejects(next.files.stat("/tmp/note"), "file_not_found");
    },
  },
  {
    name: "threads do not see each other, also not of one user or one name",
    run: async (stage) => {
      const [one, two] = [stage.newKey(), stage.newKey()];
      await (await stage.sandbox(one)).files.write(NOTE, "private");
      for (const key of [
        { user: one.user, thread: two.thread },
        { user: two.user, thread: one.thread },
      ]) {
        await stage.rejects((await stage.sandbox(key)).files.stat(NOTE), "file_not_found");
      }
    },
  },
  {
    name: "a blank has a slot of its own and no workspace",
    run: async (stage) => {
      const [first, second] = [await stage.make(null), await stage.make(null)];
      for (const { created, target } of [first, second]) {
        stage.expect(created.workspace).toBe("none");
        stage.expect(created.place).toBe(`slot:${target.sandboxId}-${target.generation}`);
      }
      stage.expect(await stage.backend.workspaces.look(stage.spot(first, stage.newKey()))).toEqual(seen(false, false));
    },
  },
  {
    name: "moveIn brings a home into a blank that runs",
    run: async (stage) => {
      const key = stage.newKey();
      await stage.homeWith(key, NOTE, "moved");
      const { bound, spot } = await bind(stage, key, "moveIn");
      stage.expect(await stage.backend.workspaces.look(spot)).toEqual(seen(false, true));
      const { sandbox } = await stage.attach(bound.target);
      stage.expect(await sandbox.files.readText(NOTE)).toBe("moved");
      stage.expect((await sandbox.exec("cat note")).stdout).toBe("moved");
    },
  },
  {
    name: "makeIn makes an empty workspace in a blank that runs",
    run: async (stage) => {
      const key = stage.newKey();
      const { bound, spot } = await bind(stage, key, "makeIn");
      stage.expect(await stage.backend.workspaces.look(spot)).toEqual(seen(false, true));
      const { sandbox } = await stage.attach(bound.target);
      stage.expect((await sandbox.exec("echo x > note && ls")).stdout).toBe("note\n");
    },
  },
  {
    name: "a step that does not fit says so and changes nothing",
    run: async (stage) => {
      const [key, other] = [stage.newKey(), stage.newKey()];
      const { workspaces } = stage.backend;
      const blank = await stage.make(null);
      const spot = stage.spot(blank, key, stage.nextGeneration());
      await stage.rejects(workspaces.moveIn(spot), "file_not_found");
      await stage.rejects(workspaces.moveHome(spot), "file_not_found");
      await stage.homeWith(other, NOTE, "home");
      const taken = stage.spot(blank, other, stage.nextGeneration());
      await stage.rejects(workspaces.makeIn(taken), "file_exists");
      await workspaces.makeIn(spot);
      await stage.rejects(workspaces.makeIn(spot), "file_exists");
      await stage.rejects(workspaces.moveIn(taken), "file_exists");
      stage.expect(await workspaces.look(taken)).toEqual(seen(true, false));
      await stage.destroy(blank);
      await stage.rejects(workspaces.moveHome(taken), "file_not_found");
      stage.expect(await workspaces.look(spot)).toEqual(seen(false, true));
      await workspaces.moveHome(spot);
    },
  },
  {
    name: "a destroyed sandbox with a workspace in its slot stays listed as dead until that has moved home",
    run: async (stage) => {
      const key = stage.newKey();
      const { workspaces } = stage.backend;
      const { bound, spot } = await bind(stage, key, "makeIn");
      await (await stage.attach(bound.target)).sandbox.files.write(NOTE, "from the slot");
      await stage.destroy(bound);
      await stage.destroy(bound);
      stage.expect(await workspaces.look(spot)).toEqual(seen(false, true));
      const { ref, place } = bound.created;
      const listed = await stage.backend.list({ consistent: true }, stage.signal);
      stage.expect(listed).toEqual([{ ref, labels: bound.spec.labels, liveness: "dead", place }]);
      stage
        .expect((await stage.backend.markers.list(spot.sandboxId)).map(({ thread }) => thread))
        .toEqual([key.thread]);
      await stage.rejects(stage.attach(bound.target), "sandbox_lost");
      await workspaces.moveHome(spot);
      stage.expect(await workspaces.look(spot)).toEqual(seen(true, false));
      stage.expect([await stage.refs(), await stage.backend.markers.list(spot.sandboxId)]).toEqual([[], []]);
      const next = await stage.make(key);
      stage.expect(next.created.workspace).toBe("existing");
      stage.expect(await (await stage.attach(next.target)).sandbox.files.readText(NOTE)).toBe("from the slot");
    },
  },
  {
    name: "another sandbox in the same generation reaches nothing of the workspace",
    run: async (stage) => {
      const key = stage.newKey();
      const { workspaces } = stage.backend;
      const { bound, spot } = await bind(stage, key, "makeIn");
      await (await stage.attach(bound.target)).sandbox.files.write(NOTE, "slot");
      const twin = await stage.make(key, { generation: spot.generation }).catch((error: unknown) => {
        stage.expect(isSandlotError(error, "stale_generation")).toBe(true);
        return null;
      });
      if (twin !== null) {
        await stage.rejects((await stage.attach(twin.target)).sandbox.files.readText(NOTE), "file_not_found");
        await stage.destroy(twin);
      }
      const other = { ...spot, sandboxId: (await stage.make(null)).target.sandboxId };
      stage.expect(await workspaces.look(other)).toMatchObject({ stale: true });
      await stage.rejects(workspaces.purge(other), "stale_generation");
      await stage.destroy(bound);
      await workspaces.moveHome(spot);
      stage.expect(await (await stage.sandbox(key)).files.readText(NOTE)).toBe("slot");
    },
  },
  {
    name: "what an older generation has in its slot is put into quarantine, and home is left alone",
    run: async (stage) => {
      const key = stage.newKey();
      const { workspaces } = stage.backend;
      const { bound, spot } = await bind(stage, key, "makeIn");
      await stage.homeWith(key, NOTE, "of a later generation");
      stage.expect(await workspaces.look(spot)).toEqual(seen(true, true, "stale"));
      await stage.rejects(ensureBound(workspaces, spot), "stale_generation");
      await stage.destroy(bound);
      await settleWorkspace(workspaces, spot, false);
      stage.expect(await workspaces.look(spot)).toEqual(seen(true, false, "stale"));
      stage.expect([await stage.refs(), await stage.backend.markers.list(spot.sandboxId)]).toEqual([[], []]);
      await workspaces.quarantine(spot);
      await settleWorkspace(workspaces, spot, true);
      stage.expect(await (await stage.sandbox(key)).files.readText(NOTE)).toBe("of a later generation");
    },
  },
  {
    name: "an older generation moves, makes and purges nothing",
    run: async (stage) => {
      const key = stage.newKey();
      const { workspaces } = stage.backend;
      const blank = await stage.make(null);
      const [before, old] = [stage.nextGeneration(), stage.nextGeneration()];
      await stage.homeWith(key, NOTE, "later");
      for (const generation of [before, old]) {
        const spot = stage.spot(blank, key, generation);
        await stage.rejects(workspaces.moveIn(spot), "stale_generation");
        await stage.rejects(workspaces.makeIn(spot), "stale_generation");
        await stage.rejects(workspaces.purge(spot), "stale_generation");
        await stage.rejects(workspaces.moveHome(spot), "stale_generation");
        stage.expect(await workspaces.look(spot)).toEqual(seen(true, false, "stale"));
      }
    },
  },
  {
    name: "the generation that used a workspace last may use it again, and so may a later one",
    run: async (stage) => {
      const key = stage.newKey();
      const { workspaces } = stage.backend;
      const { bound, spot } = await bind(stage, key, "makeIn");
      await stage.destroy(bound);
      await workspaces.moveHome(spot);
      await workspaces.purge(spot);
      const again = await stage.make(key);
      stage.expect(again.created.workspace).toBe("new");
    },
  },
  {
    name: "a sandbox of an older generation that lands late reaches nothing of the thread",
    run: async (stage) => {
      const key = stage.newKey();
      const old = stage.nextGeneration();
      await stage.homeWith(key, NOTE, "of a later generation");
      // Refusing the create is as good as making it: either way it must stay invisible.
      const late = await stage.make(key, { generation: old }).catch((error: unknown) => {
        stage.expect(isSandlotError(error, "stale_generation")).toBe(true);
        return null;
      });
      if (late !== null) {
        const { sandbox } = await stage.attach(late.target);
        await stage.rejects(sandbox.files.stat(NOTE), "file_not_found");
        await sandbox.files.write(NOTE, "of an older generation");
        await stage.destroy(late);
      }
      const next = await stage.make(key);
      stage.expect(next.created.workspace).toBe("existing");
      const { sandbox } = await stage.attach(next.target);
      stage.expect(await sandbox.files.readText(NOTE)).toBe("of a later generation");
    },
  },
  {
    name: "purge removes a workspace at home and in a slot, and once more is fine",
    run: async (stage) => {
      const { workspaces } = stage.backend;
      const home = stage.newKey();
      const made = await stage.make(home);
      await stage.destroy(made);
      const { bound, spot } = await bind(stage, stage.newKey(), "makeIn");
      await stage.destroy(bound);
      for (const one of [stage.spot(made, home), spot]) {
        await workspaces.purge(one);
        await workspaces.purge(one);
        stage.expect(await workspaces.look(one)).toEqual(seen(false, false));
      }
      stage.expect((await stage.make(home)).created.workspace).toBe("new");
    },
  },
  {
    name: "a thread's sandbox has its marker from the first moment",
    run: async (stage) => {
      const made = await stage.make();
      stage.expect(await stage.backend.markers.list(made.target.sandboxId)).toEqual([made.spec.marker]);
      const blank = await stage.make(null);
      stage.expect(await stage.backend.markers.list(blank.target.sandboxId)).toEqual([]);
    },
  },
  {
    name: "markers are kept per generation and dropped one by one",
    run: async (stage) => {
      const { markers } = stage.backend;
      const blank = await stage.make(null);
      const { sandboxId } = blank.target;
      const [first, second] = [stage.nextGeneration(), stage.nextGeneration()].map((generation) =>
        stage.marker(blank, stage.newKey(), generation),
      );
      if (first === undefined || second === undefined) return;
      await markers.write(second);
      await markers.write(first);
      await markers.write(first);
      const byGeneration = [...(await (await stage.peer()).markers.list(sandboxId))].sort(
        (a, b) => a.generation - b.generation,
      );
      stage.expect(byGeneration).toEqual([first, second]);
      await markers.drop(sandboxId, first.generation);
      await markers.drop(sandboxId, first.generation);
      stage.expect(await markers.list(sandboxId)).toEqual([second]);
      await stage.destroy(blank);
      stage.expect(await markers.list(sandboxId)).toEqual([]);
      // A removed sandbox has no place for a marker, and nothing would remove the marker.
      await stage.rejects(markers.write(first), "file_not_found");
    },
  },
  {
    name: "a marker is never written over by another of its generation",
    run: async (stage) => {
      const { markers } = stage.backend;
      const blank = await stage.make(null);
      const marker = stage.marker(blank, stage.newKey(), stage.nextGeneration());
      await markers.write(marker);
      const peer = await stage.peer();
      await stage.rejects(peer.markers.write({ ...marker, token: stage.newToken() }), "file_exists");
      stage.expect(await markers.list(blank.target.sandboxId)).toEqual([marker]);
    },
  },
  {
    name: "ensureBound and settleWorkspace bring it in and home, however often they run",
    run: async (stage) => {
      const key = stage.newKey();
      const { workspaces } = stage.backend;
      const first = await stage.make(null);
      const spot = stage.spot(first, key, stage.nextGeneration());
      const outcomes = await Promise.all([
        ensureBound(workspaces, spot),
        ensureBound((await stage.peer()).workspaces, spot),
      ]);
      stage.expect(outcomes.includes("new")).toBe(true);
      stage.expect(await ensureBound(workspaces, spot)).toBe("existing");
      await stage.destroy(first);
      await Promise.all([
        settleWorkspace(workspaces, spot, false),
        settleWorkspace((await stage.peer()).workspaces, spot, false),
      ]);
      await settleWorkspace(workspaces, spot, false);
      stage.expect(await workspaces.look(spot)).toEqual(seen(true, false));
      await settleWorkspace(workspaces, spot, true);
      stage.expect(await workspaces.look(spot)).toEqual(seen(false, false));
    },
  },
];

/** The expected result of `look`. */
function seen(home: boolean, slot: boolean, stale?: "stale"): WorkspaceSight {
  return { home, slot, stale: stale !== undefined };
}

/** The steps of a bind: marker, workspace, rebind. */
async function bind(
  stage: BackendStage,
  key: Key,
  step: "moveIn" | "makeIn",
): Promise<{ bound: Made; spot: ReturnType<BackendStage["spot"]> }> {
  const blank = await stage.make(null);
  const generation = stage.nextGeneration();
  const token = stage.newToken();
  const spot = stage.spot(blank, key, generation);
  await stage.backend.markers.write(stage.marker(blank, key, generation, token));
  await stage.backend.workspaces[step](spot);
  const target = { ...blank.target, generation, token };
  await stage.backend.rebind(target, blank.spec, stage.signal);
  return { bound: { ...blank, target }, spot };
}
