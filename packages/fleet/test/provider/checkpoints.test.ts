/** Checkpoints, restore, undo, redo and fork on memory: what the fleet adds to a backend. */

import { SandlotError } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import type { Fleet } from "../../src/fleet.ts";
import { type Instance, newStage, type Stage } from "../support/stage.ts";
import { watched } from "../support/virtual-time.ts";
import { intercepted } from "./intercepted-checkpoints.ts";

const QUIET = { checkpoints: { automatic: false } } as const;
const T1 = { thread: "t1" } as const;

async function run(stage: Stage, fleet: Fleet, script: string, thread = "t1"): Promise<string> {
  const lease = await stage.until(fleet.acquire({ thread }));
  const { stdout } = await stage.until(lease.sandbox.exec(script));
  await stage.until(lease.release());
  return stdout;
}

describe("a checkpoint", () => {
  test("is written only where something changed, or for a label", async () => {
    const stage = newStage(QUIET);
    const { fleet, eventsOf } = await stage.open();
    await run(stage, fleet, "echo one > file");
    const first = await fleet.checkpoints.take(T1);
    expect(first).toMatchObject({ isNew: true, checkpoint: { cause: "requested", fileCount: 1, isHead: true } });
    expect(await fleet.checkpoints.take(T1)).toEqual({ ...first, isNew: false });
    const labelled = await fleet.checkpoints.take(T1, { label: "before the change" });
    expect(labelled.checkpoint.parent).toBe(first.checkpoint.id);
    expect((await fleet.checkpoints.find(T1, "before the change")).id).toBe(labelled.checkpoint.id);
    expect(eventsOf("checkpoint-taken")).toHaveLength(2);
  });

  test("of a lease is one of its thread", async () => {
    const stage = newStage(QUIET);
    const { fleet } = await stage.open();
    const lease = await fleet.acquire(T1);
    await lease.sandbox.exec("echo one > file");
    const { checkpoint } = await lease.checkpoint({ label: "mine" });
    expect(await fleet.checkpoints.list(T1)).toEqual([checkpoint]);
    expect(checkpoint.generation).toBe(lease.generation);
    await lease.release();
    await expect(lease.checkpoint()).rejects.toMatchObject({ code: "lease_released" });
  });

  test("is of one user only, and of a thread with files", async () => {
    const stage = newStage(QUIET);
    const { fleet } = await stage.open();
    await run(stage, fleet, "echo one > file");
    const { checkpoint } = await fleet.checkpoints.take(T1);
    expect(await fleet.checkpoints.list({ ...T1, user: "other" })).toEqual([]);
    await stage.refusal("checkpoint_not_found", fleet.checkpoints.find({ ...T1, user: "other" }, checkpoint.id));
    await stage.refusal("thread_not_found", fleet.checkpoints.take({ ...T1, user: "other" }));
    await stage.refusal("thread_not_found", fleet.checkpoints.fork({ ...T1, user: "other" }, "t2"));
  });

  test("goes with a purge of its thread", async () => {
    const stage = newStage(QUIET);
    const { fleet } = await stage.open();
    await run(stage, fleet, "echo one > file");
    await fleet.checkpoints.take(T1, { label: "kept" });
    await stage.until(fleet.destroy(T1, { purge: true }));
    expect(await fleet.checkpoints.list(T1)).toEqual([]);
  });

  test("does not freeze where the backend cannot, and says so where there are none", async () => {
    const stage = newStage(QUIET);
    const { fleet, backend } = await stage.open();
    await run(stage, fleet, "echo one > file");
    const refused = await stage.refusal("capability_missing", fleet.checkpoints.take(T1, { quiesce: true }));
    expect(refused.details).toMatchObject({ capability: "pause" });
    Object.defineProperty(backend.proxy, "checkpoints", { value: undefined });
    const { checkpoints } = fleet;
    for (const call of [() => checkpoints.list(T1), () => checkpoints.undo(T1), () => checkpoints.fork(T1, "t2")])
      expect((await stage.refusal("capability_missing", call())).details).toMatchObject({ capability: "checkpoints" });
  });

  test("has a deadline and can be cancelled", async () => {
    const stage = newStage(QUIET);
    const instance = await stage.open(undefined, (parts) => intercepted(parts, { take: () => new Promise(() => {}) }));
    const { fleet } = instance;
    await run(stage, fleet, "echo one > file");
    const refused = await stage.refusal("checkpoint_timeout", fleet.checkpoints.take(T1, { timeoutMs: 3_000 }));
    expect(refused.details).toMatchObject({ timeoutMs: 3_000 });
    const controller = new AbortController();
    const taking = fleet.checkpoints.take(T1, { signal: controller.signal });
    controller.abort(new Error("enough"));
    await expect(taking).rejects.toThrow("enough");
  });
});

describe("an automatic checkpoint", () => {
  test("is taken when the last lease ends, and not without a change", async () => {
    const stage = newStage();
    const { fleet, eventsOf } = await stage.open();
    await run(stage, fleet, "echo one > file");
    await stage.settle();
    expect(await fleet.checkpoints.list(T1)).toMatchObject([{ cause: "automatic" }]);
    await run(stage, fleet, "cat file");
    await stage.settle();
    expect(eventsOf("checkpoint-taken")).toHaveLength(1);
  });

  test("is taken a while after the last command under a lease that goes on", async () => {
    const stage = newStage({ checkpoints: { quietMs: 10_000 } });
    const { fleet } = await stage.open();
    await using lease = await fleet.acquire(T1);
    await lease.sandbox.exec("echo one > file");
    await stage.advance(9_000);
    expect(await fleet.checkpoints.list(T1)).toEqual([]);
    await stage.advance(7_000);
    expect(await fleet.checkpoints.list(T1)).toHaveLength(1);
    await lease.sandbox.exec("echo two > file");
    await stage.advance(60_000);
    expect(await fleet.checkpoints.list(T1)).toHaveLength(2);
  });

  test("delays no release, acquire or stop, and is one at a time for a thread", async () => {
    const stage = newStage();
    let [running, most] = [0, 0];
    const gates: (() => void)[] = [];
    const slow = (parts: Pick<Instance, "backend">) => {
      const take = parts.backend.proxy.checkpoints?.take;
      intercepted(parts, {
        take: async (...args) => {
          running += 1;
          most = Math.max(most, running);
          await new Promise<void>((resolve) => gates.push(resolve));
          running -= 1;
          if (take === undefined) throw new Error("no checkpoints");
          return take(...args);
        },
      });
    };
    const { fleet } = await stage.open(undefined, slow);
    for (let round = 0; round < 3; round += 1) await run(stage, fleet, `echo ${round} > file`);
    expect(await stage.until(fleet.destroy(T1))).toBe("stopped");
    expect([gates.length, most]).toEqual([1, 1]);
    for (let opened = 0; opened < gates.length; opened += 1) {
      gates[opened]?.();
      await stage.settle();
    }
    expect([gates.length, most]).toEqual([2, 1]);
    expect(await fleet.checkpoints.list(T1)).toHaveLength(1);
  });

  test("that fails is an event, and the thread goes on", async () => {
    const stage = newStage();
    const refusal = new SandlotError("checkpoint_refused", { thread: "t1", bound: "its bytes", max: 1, actual: 2 });
    const { fleet, eventsOf } = await stage.open(undefined, (parts) =>
      intercepted(parts, { take: () => Promise.reject(refusal) }),
    );
    await run(stage, fleet, "echo one > file");
    await stage.settle();
    expect(eventsOf("checkpoint-failed")).toMatchObject([{ thread: "t1", code: "checkpoint_refused" }]);
    expect(await run(stage, fleet, "cat file")).toBe("one\n");
  });

  test("is finished by a process that closes at once", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    await run(stage, fleet, "echo one > file");
    await stage.until(fleet.close());
    const later = await stage.open();
    expect(await later.fleet.checkpoints.list(T1)).toHaveLength(1);
  });
});

describe("a restore", () => {
  test("brings back files, modes and links, keeps the present, and ends the sandbox", async () => {
    const stage = newStage(QUIET);
    const { fleet, eventsOf } = await stage.open();
    await run(stage, fleet, "echo one > file; mkdir empty; ln -s file link; echo x > tool; chmod 755 tool");
    const { checkpoint } = await fleet.checkpoints.take(T1);
    await run(stage, fleet, "rm -r empty link tool; echo two > file; echo new > other");
    const restored = await stage.until(fleet.checkpoints.restore(T1, checkpoint.id.slice(0, 6)));
    expect(restored.checkpoint).toMatchObject({ cause: "restored", restoredFrom: checkpoint.id, isHead: true });
    expect(restored.safety).toMatchObject({ cause: "before-restore" });
    expect(await stage.records()).toEqual([]);
    expect(eventsOf("sandbox-stopped").at(-1)).toMatchObject({ reason: "restored" });
    expect(eventsOf("workspace-restored")).toMatchObject([{ as: "restore", safety: restored.safety.id }]);
    await using lease = await stage.until(fleet.acquire(T1));
    expect((await lease.sandbox.exec("cat link; ls; ls empty")).stdout).toBe("one\nempty\nfile\nlink\ntool\n");
    expect((await lease.sandbox.files.stat("tool")).mode).toBe(0o755);
    const diff = await fleet.checkpoints.diff(T1, { from: restored.safety.id, texts: true });
    expect(diff.counts).toEqual({ added: 3, changed: 1, removed: 1 });
    expect(diff.changes.find(({ path }) => path === "workspace/file")?.diff).toContain("-two\n+one\n");
  });

  test("is what a diff without a beginning would take back, also when the present is a checkpoint", async () => {
    const stage = newStage(QUIET);
    const { fleet } = await stage.open();
    await run(stage, fleet, "echo one > file");
    const { checkpoint } = await fleet.checkpoints.take(T1);
    expect(await fleet.checkpoints.diff(T1)).toMatchObject({ from: checkpoint.id, counts: { added: 0, changed: 0 } });
    await run(stage, fleet, "echo two > file");
    const before = await fleet.checkpoints.diff(T1);
    await fleet.checkpoints.take(T1);
    const after = await fleet.checkpoints.diff(T1);
    for (const diff of [before, after])
      expect(diff).toMatchObject({ from: checkpoint.id, to: null, counts: { added: 0, changed: 1, removed: 0 } });
  });

  test("of some paths leaves the others", async () => {
    const stage = newStage(QUIET);
    const { fleet } = await stage.open();
    await run(stage, fleet, "echo one > a; echo one > b");
    const { checkpoint } = await fleet.checkpoints.take(T1);
    await run(stage, fleet, "echo two > a; echo two > b; echo new > c");
    await stage.until(fleet.checkpoints.restore(T1, checkpoint.id, { paths: ["workspace/a", "workspace/c"] }));
    expect(await run(stage, fleet, "cat a b; ls")).toBe("one\ntwo\na\nb\n");
    for (const path of ["../t2", "/", "workspace/../../x"])
      await stage.refusal("invalid_request", fleet.checkpoints.restore(T1, checkpoint.id, { paths: [path] }));
  });

  test("is refused while others hold the sandbox; forced, the holder goes on in the next generation", async () => {
    const stage = newStage(QUIET);
    const [a, b] = [await stage.open(), await stage.open()];
    await using lease = await a.fleet.acquire(T1);
    await lease.sandbox.exec("echo one > file");
    const { checkpoint } = await lease.checkpoint();
    await lease.sandbox.exec("echo two > file");
    await stage.refusal("sandbox_in_use", b.fleet.checkpoints.restore(T1, checkpoint.id));
    expect((await lease.sandbox.exec("cat file")).stdout).toBe("two\n");
    const losses: string[] = [];
    lease.onLost(({ reason }) => losses.push(reason));
    const before = lease.generation;
    await stage.until(b.fleet.checkpoints.restore(T1, checkpoint.id, { force: true }));
    await stage.advance(1_000);
    expect(losses).toEqual(["restored"]);
    expect((await stage.until(lease.sandbox.exec("cat file"))).stdout).toBe("one\n");
    expect(lease.generation).toBeGreaterThan(before);
    expect(lease.recovery.kind).toBe("restored");
  });

  test("lets no caller acquire the thread before it is complete", async () => {
    const stage = newStage(QUIET);
    const { fleet, backend } = await stage.open();
    await run(stage, fleet, "echo one > file");
    const { checkpoint } = await fleet.checkpoints.take(T1);
    await run(stage, fleet, "echo two > file");
    const gate = backend.hang("destroy");
    const restoring = fleet.checkpoints.restore(T1, checkpoint.id);
    await stage.settle();
    const acquiring = watched(fleet.acquire(T1));
    await stage.advance(1_000);
    expect(acquiring.state).toBe("pending");
    gate.open();
    await stage.until(restoring);
    await using next = await stage.until(acquiring.promise);
    expect((await next.sandbox.exec("cat file")).stdout).toBe("one\n");
  });

  test("is finished by another instance when its own dies before, in or after it", async () => {
    for (const when of ["destroy", "restore", "remove"] as const) {
      const stage = newStage(QUIET);
      const [a, b] = [await stage.open(), await stage.open()];
      await run(stage, a.fleet, "echo one > file");
      const { checkpoint } = await a.fleet.checkpoints.take(T1);
      await run(stage, a.fleet, "echo two > file");
      if (when === "destroy") a.backend.hang("destroy");
      else if (when === "remove") a.store.hang("remove");
      else intercepted(a, { restore: () => new Promise(() => {}) });
      void a.fleet.checkpoints.restore(T1, checkpoint.id, { requestId: "request-1" }).catch(() => undefined);
      await stage.settle();
      expect(await stage.recordOf("t1")).toMatchObject({
        ...{ state: "stopping", reason: "restored" },
        restore: { checkpoint: checkpoint.id, requestId: "request-1", as: "restore" },
      });
      a.crash({ seen: true });
      await using next = await stage.until(b.fleet.acquire(T1));
      expect((await next.sandbox.exec("cat file")).stdout).toBe("one\n");
      const again = b.fleet.checkpoints.restore(T1, checkpoint.id, { requestId: "request-1" });
      expect(await stage.until(again)).toMatchObject({ checkpoint: { restoredFrom: checkpoint.id } });
    }
  });

  test("takes as long as it makes progress, and no longer", async () => {
    const stage = newStage({ ...QUIET, stopTimeoutMs: 5_000 });
    let tick: (() => void) | null = null;
    let done: (() => void) | null = null;
    const slow = (parts: Pick<Instance, "backend">) => {
      const restore = parts.backend.proxy.checkpoints?.restore;
      intercepted(parts, {
        async restore(spot, target, budget, call) {
          tick = () => call.onProgress?.({ phase: "applying", files: 1, bytes: 1, totalFiles: 2 });
          await new Promise<void>((resolve) => (done = resolve));
          call.signal.throwIfAborted();
          if (restore === undefined) throw new Error("no checkpoints");
          return restore(spot, target, budget, call);
        },
      });
    };
    const { fleet, eventsOf } = await stage.open(undefined, slow);
    await run(stage, fleet, "echo one > file");
    const { checkpoint } = await fleet.checkpoints.take(T1);
    const progress: number[] = [];
    const onProgress = ({ files }: { readonly files: number }) => progress.push(files);
    const restoring = watched(fleet.checkpoints.restore(T1, checkpoint.id, { onProgress }));
    await stage.settle();
    for (let seconds = 0; seconds < 20; seconds += 4) {
      await stage.advance(4_000);
      (tick as (() => void) | null)?.();
    }
    expect(eventsOf("sandbox-stop-failed")).toEqual([]);
    expect(progress.length).toBeGreaterThan(3);
    await stage.advance(6_000);
    expect(eventsOf("sandbox-stop-failed")[0]?.problem).toContain("made no progress");
    await stage.advance(6_000);
    (done as (() => void) | null)?.();
    await stage.until(restoring.promise);
  });

  test("that the backend refuses leaves the thread as it was, and says why", async () => {
    const stage = newStage(QUIET);
    const damaged = new SandlotError("checkpoint_damaged", { checkpoint: "c1", path: "file", problem: "it is gone" });
    const { fleet, eventsOf } = await stage.open(undefined, (parts) =>
      intercepted(parts, { restore: () => Promise.reject(damaged) }),
    );
    await run(stage, fleet, "echo one > file");
    const { checkpoint } = await fleet.checkpoints.take(T1);
    await run(stage, fleet, "echo two > file");
    await stage.refusal("checkpoint_damaged", fleet.checkpoints.restore(T1, checkpoint.id));
    expect(eventsOf("workspace-restore-refused")).toHaveLength(1);
    expect(await run(stage, fleet, "cat file")).toBe("two\n");
  });

  test("that cannot work stops nothing", async () => {
    const stage = newStage({ ...QUIET, blueprints: { default: {} } });
    const { fleet } = await stage.open();
    await using lease = await fleet.acquire(T1);
    await lease.sandbox.exec("echo one > file");
    await stage.refusal("checkpoint_not_found", fleet.checkpoints.restore(T1, "none", { force: true }));
    await stage.refusal("nothing_to_undo", fleet.checkpoints.undo(T1, { force: true }));
    expect((await lease.sandbox.exec("cat file")).stdout).toBe("one\n");
  });

  test("gives way to a purge that comes meanwhile", async () => {
    const stage = newStage(QUIET);
    const { fleet, backend } = await stage.open();
    await run(stage, fleet, "echo one > file");
    const { checkpoint } = await fleet.checkpoints.take(T1);
    const gate = backend.hang("destroy");
    const restoring = watched(fleet.checkpoints.restore(T1, checkpoint.id));
    await stage.settle();
    const purging = fleet.destroy(T1, { purge: true });
    await stage.settle();
    gate.open();
    expect(await stage.until(purging)).toBe("stopped");
    await stage.refusal("checkpoint_not_found", restoring.promise);
    expect(await fleet.checkpoints.list(T1)).toEqual([]);
    await using next = await stage.until(fleet.acquire(T1));
    expect(next.recovery.kind).toBe("empty");
  });
});

describe("undo and redo", () => {
  test("go through the states of a thread, and keep what was there before each", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    for (const text of ["one", "two", "three"]) {
      await run(stage, fleet, `echo ${text} > file`);
      await stage.settle();
    }
    const seen: string[] = [];
    for (const direction of ["undo", "undo", "redo", "redo"] as const) {
      await stage.until(fleet.checkpoints[direction](T1));
      seen.push(await run(stage, fleet, "cat file"));
      await stage.settle();
    }
    expect(seen).toEqual(["two\n", "one\n", "two\n", "three\n"]);
    await stage.refusal("nothing_to_undo", fleet.checkpoints.redo(T1));
  });

  test("an undo keeps a change that no checkpoint has yet", async () => {
    const stage = newStage(QUIET);
    const { fleet } = await stage.open();
    await run(stage, fleet, "echo one > file");
    await fleet.checkpoints.take(T1);
    await run(stage, fleet, "echo two > file");
    await stage.until(fleet.checkpoints.undo(T1));
    expect(await run(stage, fleet, "cat file")).toBe("one\n");
    await stage.until(fleet.checkpoints.redo(T1));
    expect(await run(stage, fleet, "cat file")).toBe("two\n");
  });
});

describe("a new thread", () => {
  test("is forked from a checkpoint or from now, with its links", async () => {
    const stage = newStage(QUIET);
    const { fleet } = await stage.open();
    await run(stage, fleet, "echo one > file; ln -s file link");
    const { checkpoint } = await fleet.checkpoints.take(T1);
    await run(stage, fleet, "echo two > file");
    expect(await stage.until(fleet.checkpoints.fork(T1, "t2", { checkpoint: checkpoint.id }))).toMatchObject({
      ...{ fileCount: 2, skipped: [], checkpoint: { cause: "forked" } },
    });
    await stage.until(fleet.checkpoints.fork(T1, "t3"));
    expect(await run(stage, fleet, "cat link", "t2")).toBe("one\n");
    expect(await run(stage, fleet, "cat link; echo three > file", "t3")).toBe("two\n");
    expect(await run(stage, fleet, "cat file")).toBe("two\n");
    await stage.refusal("thread_exists", fleet.checkpoints.fork(T1, "t2"));
    await stage.refusal("thread_exists", fleet.checkpoints.fork(T1, "t1"));
    expect(await stage.records()).toHaveLength(3);
  });

  test("comes with an acquire, from an archive that an export has written", async () => {
    const stage = newStage(QUIET);
    const { fleet } = await stage.open();
    await run(stage, fleet, "echo one > file; ln -s file link; mkdir empty");
    const { checkpoint } = await fleet.checkpoints.take(T1);
    const archive = fleet.checkpoints.export(T1, checkpoint.id);
    await using lease = await fleet.acquire({ thread: "t2", from: { archive } });
    expect((await lease.sandbox.exec("cat link; ls")).stdout).toBe("one\nempty\nfile\nlink\n");
    await stage.refusal("thread_exists", fleet.acquire({ thread: "t2", from: { thread: "t1" } }));
    const noise = (async function* () {
      yield new Uint8Array(2_048).fill(7);
    })();
    await stage.refusal("invalid_request", fleet.acquire({ thread: "t4", from: { archive: noise } }));
    await using empty = await stage.until(fleet.acquire({ thread: "t4" }));
    expect(empty.recovery.kind).toBe("empty");
  });
});
