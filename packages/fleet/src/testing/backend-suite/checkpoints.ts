/** Checkpoints of workspaces: of any backend that declares them. */

import { WORKSPACE_ROOT } from "@sandlot/contract";
import type { WorkspaceSpot } from "../../backend/backend.ts";
import type { Checkpoints, RestoreTarget, Taken } from "../../backend/checkpoints.ts";
import { settleWorkspace } from "../../backend/workspace-binding.ts";
import type { BackendCase, BackendStage, Key, Made } from "./stage.ts";

const W = `${WORKSPACE_ROOT}/workspace`;

/** A thread whose sandbox has run a script and is gone. */
interface Thread {
  readonly key: Key;
  readonly made: Made;
  readonly spot: WorkspaceSpot;
}

const CASES: readonly { readonly name: string; run(stage: BackendStage, checkpoints: Checkpoints): Promise<void> }[] = [
  {
    name: "nothing changed, nothing written; a label is always written",
    run: async (stage, checkpoints) => {
      const { key } = await ran(stage, "echo one > file");
      const first = await take(stage, checkpoints, key);
      stage.expect(first.kind).toBe("taken");
      stage.expect(await take(stage, checkpoints, key)).toEqual({ ...first, kind: "unchanged" });
      stage.expect((await take(stage, checkpoints, key, { label: "kept" })).kind).toBe("taken");
      stage.expect((await checkpoints.list(key)).map(({ label }) => label)).toEqual(["kept", null]);
      stage.expect(await take(stage, checkpoints, stage.newKey())).toEqual({ kind: "nothing" });
    },
  },
  {
    name: "a live sandbox's files are kept as they are",
    run: async (stage, checkpoints) => {
      const key = stage.newKey();
      const made = await stage.make(key);
      const { sandbox } = await stage.attach(made.target);
      await sandbox.exec("echo one > file");
      const taken = idOf(await take(stage, checkpoints, key));
      await sandbox.exec("echo two > file; echo new > other");
      const diff = await checkpoints.diff(
        key,
        { from: taken, to: null },
        { ...call(stage), texts: true, maxChanges: 10 },
      );
      stage.expect(diff.counts).toEqual({ added: 1, changed: 1, removed: 0 });
      stage
        .expect(diff.changes.find(({ path }) => path === "workspace/file")?.diff?.includes("-one\n+two\n"))
        .toBe(true);
      await stage.destroy(made);
    },
  },
  {
    name: "a restore brings back files, modes, links and empty directories, and keeps what was there",
    run: async (stage, checkpoints) => {
      const script = "echo one > file; ln -s file link; mkdir -p a/b; echo x > tool";
      const { key, spot } = await ran(stage, script, "tool");
      const id = idOf(await take(stage, checkpoints, key));
      const later = await ran(stage, "echo two > file; rm -r link a; echo new > other; rm tool", null, key);
      const restored = await checkpoints.restore(later.spot, target(stage, id), null, call(stage));
      stage.expect(restored.checkpoint.restoredFrom).toBe(id);
      stage.expect(await checkpoints.outcome(key, "request-1")).toEqual(restored);
      const { sandbox } = await stage.attach((await stage.make(key)).target);
      stage.expect((await sandbox.exec("cat link; ls; ls a")).stdout).toBe("one\na\nfile\nlink\ntool\nb\n");
      stage.expect((await sandbox.files.stat(`${W}/tool`)).mode & 0o777).toBe(0o755);
      const range = { from: restored.safety.id, to: restored.checkpoint.id };
      const diff = await checkpoints.diff(key, range, { ...call(stage), texts: false, maxChanges: 100 });
      stage.expect(diff.counts.changed).toBe(1);
      stage.expect(spot.generation < later.spot.generation).toBe(true);
    },
  },
  {
    name: "a restore of some paths leaves the others",
    run: async (stage, checkpoints) => {
      const { key } = await ran(stage, "echo one > a; echo one > b");
      const id = idOf(await take(stage, checkpoints, key));
      const { spot } = await ran(stage, "echo two > a; echo two > b", null, key);
      await checkpoints.restore(spot, { ...target(stage, id), paths: ["workspace/a"] }, null, call(stage));
      const { sandbox } = await stage.attach((await stage.make(key)).target);
      stage.expect((await sandbox.exec("cat a b")).stdout).toBe("one\ntwo\n");
    },
  },
  {
    name: "a restore may be asked for again, and changes nothing then",
    run: async (stage, checkpoints) => {
      const { key } = await ran(stage, "echo one > file");
      const id = idOf(await take(stage, checkpoints, key));
      const { spot } = await ran(stage, "echo two > file", null, key);
      const first = await checkpoints.restore(spot, target(stage, id), null, call(stage));
      const again = await checkpoints.restore(spot, target(stage, id), null, call(stage));
      stage.expect(again.checkpoint.id).toBe(first.checkpoint.id);
      stage.expect(again.safety.id).toBe(first.safety.id);
      stage.expect(await checkpoints.unfinished()).toEqual([]);
    },
  },
  {
    name: "an older generation restores nothing",
    run: async (stage, checkpoints) => {
      const older = await ran(stage, "echo one > file");
      const id = idOf(await take(stage, checkpoints, older.key));
      await ran(stage, "echo two > file", null, older.key);
      await stage.rejects(checkpoints.restore(older.spot, target(stage, id), null, call(stage)), "stale_generation");
      const { sandbox } = await stage.attach((await stage.make(older.key)).target);
      stage.expect((await sandbox.exec("cat file")).stdout).toBe("two\n");
    },
  },
  {
    name: "what does not fit the budget is refused before anything is changed",
    run: async (stage, checkpoints) => {
      const { key } = await ran(stage, "echo one > a; echo one > b; echo one > c");
      const id = idOf(await take(stage, checkpoints, key));
      await ran(stage, "rm a b; echo two > c", null, key);
      const budget = { maxBytes: 1_000_000_000, maxFiles: 1 };
      await stage.rejects(checkpoints.check(key, target(stage, id), budget, call(stage)), "disk_limit_exceeded");
      const to = { user: key.user, thread: stage.newKey().thread };
      const source = { kind: "checkpoint", owner: key, checkpoint: id } as const;
      await stage.rejects(checkpoints.seed(source, to, budget, call(stage)), "disk_limit_exceeded");
      stage.expect((await checkpoints.list(to)).length).toBe(0);
      const { sandbox } = await stage.attach((await stage.make(key)).target);
      stage.expect((await sandbox.exec("ls; cat c")).stdout).toBe("c\ntwo\n");
    },
  },
  {
    name: "undo goes back step by step, and redo returns the same way",
    run: async (stage, checkpoints) => {
      let { key, spot } = await ran(stage, "echo one > file");
      await take(stage, checkpoints, key);
      for (const text of ["two", "three"]) {
        ({ key, spot } = await ran(stage, `echo ${text} > file`, null, key));
        await take(stage, checkpoints, key);
      }
      const seen: string[] = [];
      for (const [index, as] of (["undo", "undo", "redo", "redo"] as const).entries()) {
        const { id } = await checkpoints.resolve(key, as);
        await checkpoints.restore(spot, { checkpoint: id, as, requestId: `request-${index}` }, null, call(stage));
        const next = await ran(stage, "cat file", null, key);
        spot = next.spot;
        seen.push(next.stdout);
      }
      stage.expect(seen).toEqual(["two\n", "one\n", "two\n", "three\n"]);
      await stage.rejects(checkpoints.resolve(key, "redo"), "nothing_to_undo");
    },
  },
  {
    name: "a new thread is seeded from a checkpoint, from now, and from an exported archive, links included",
    run: async (stage, checkpoints) => {
      const { key } = await ran(stage, "echo one > file; ln -s file link");
      const id = idOf(await take(stage, checkpoints, key));
      await ran(stage, "echo two > file", null, key);
      const content = checkpoints.export(key, id, call(stage));
      const sources = [
        [{ kind: "checkpoint", owner: key, checkpoint: id }, "one\n"],
        [{ kind: "thread", owner: key }, "two\n"],
        [{ kind: "archive", content }, "one\n"],
      ] as const;
      for (const [source, expected] of sources) {
        const to = { user: key.user, thread: stage.newKey().thread };
        stage.expect((await checkpoints.seed(source, to, null, call(stage))).fileCount >= 1).toBe(true);
        const { sandbox } = await stage.attach((await stage.make(to)).target);
        stage.expect((await sandbox.exec("cat link")).stdout).toBe(expected);
        await stage.rejects(checkpoints.seed({ kind: "thread", owner: key }, to, null, call(stage)), "thread_exists");
      }
      const other = stage.newKey();
      await stage.rejects(
        checkpoints.seed({ kind: "thread", owner: key }, other, null, call(stage)),
        "thread_not_found",
      );
    },
  },
  {
    name: "another user finds nothing, and a purge removes everything",
    run: async (stage, checkpoints) => {
      const { key, spot } = await ran(stage, "echo one > file");
      const id = idOf(await take(stage, checkpoints, key, { label: "kept" }));
      const other = { ...key, user: stage.newKey().user };
      stage.expect(await checkpoints.list(other)).toEqual([]);
      stage.expect(await checkpoints.newest(other)).toBe(null);
      stage.expect(await checkpoints.newest(key)).toEqual((await checkpoints.list(key))[0]);
      for (const name of [id, "kept", id.slice(0, 6)]) {
        stage.expect((await checkpoints.find(key, name)).id).toBe(id);
        await stage.rejects(checkpoints.find(other, name), "checkpoint_not_found");
      }
      stage.expect((await checkpoints.usage(key.user)).checkpoints).toBe(1);
      await settleWorkspace(stage.backend.workspaces, spot, true);
      stage.expect(await checkpoints.list(key)).toEqual([]);
      await stage.rejects(checkpoints.find(key, id), "checkpoint_not_found");
    },
  },
  {
    name: "a removed checkpoint leaves the others whole",
    run: async (stage, checkpoints) => {
      const { key } = await ran(stage, "echo one > file; echo same > other");
      const first = idOf(await take(stage, checkpoints, key));
      await ran(stage, "echo two > file", null, key);
      const second = idOf(await take(stage, checkpoints, key));
      await checkpoints.remove(key, first);
      const problems: string[] = [];
      await checkpoints.collect((problem) => problems.push(problem), stage.signal);
      stage.expect(problems).toEqual([]);
      stage.expect(await checkpoints.verify(key, null, call(stage))).toEqual({ checked: 1, damaged: [] });
      stage.expect((await checkpoints.list(key)).map(({ id, parent }) => [id, parent])).toEqual([[second, null]]);
    },
  },
];

export const checkpointCases: readonly BackendCase[] = [
  {
    name: "they are declared where they are offered",
    run: async ({ backend, expect }) =>
      expect(backend.checkpoints !== undefined).toBe(backend.capabilities.has("checkpoints")),
  },
  ...CASES.map(({ name, run }) => ({
    name,
    run: async (stage: BackendStage) => {
      const { checkpoints } = stage.backend;
      if (checkpoints !== undefined) await run(stage, checkpoints);
    },
  })),
];

function call({ signal }: BackendStage) {
  return { signal };
}

function target(_stage: BackendStage, checkpoint: string): RestoreTarget {
  return { checkpoint, as: "restore", requestId: "request-1" };
}

function take(stage: BackendStage, checkpoints: Checkpoints, key: Key, more: { readonly label?: string } = {}) {
  const about = { cause: "requested", generation: null, environment: null, writers: "live" } as const;
  return checkpoints.take(key, { ...about, ...more, signal: stage.signal });
}

function idOf(taken: Taken): string {
  return taken.kind === "nothing" ? "" : taken.checkpoint.id;
}

/** Runs a script in a sandbox of the thread, and ends it. `tool`: a file that becomes executable. */
async function ran(
  stage: BackendStage,
  script: string,
  tool: string | null = null,
  key: Key = stage.newKey(),
): Promise<Thread & { readonly stdout: string }> {
  const made = await stage.make(key);
  const { sandbox } = await stage.attach(made.target);
  const { stdout } = await sandbox.exec(script);
  if (tool !== null) await sandbox.files.write(`${W}/${tool}`, "#!/bin/sh\n", { mode: 0o755 });
  await stage.destroy(made);
  return { key, made, spot: stage.spot(made, key), stdout };
}
