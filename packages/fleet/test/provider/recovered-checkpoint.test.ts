/** After a loss, a lease names the thread's newest checkpoint and says whether files have changed since. */

import { describe, expect, test } from "vitest";
import { type Instance, newStage, type Stage } from "../support/stage.ts";
import { intercepted } from "./intercepted-checkpoints.ts";

const T1 = { thread: "t1" } as const;

async function crashed(stage: Stage, open?: (parts: Pick<Instance, "backend">) => void, after = "true") {
  const instance = await stage.open(undefined, open);
  const lease = await instance.fleet.acquire(T1);
  await lease.sandbox.exec("echo one > file");
  const { checkpoint } = await lease.checkpoint();
  await lease.sandbox.exec(after);
  stage.killSandbox(lease.sandbox.id);
  await stage.settle();
  return { ...instance, lease, checkpoint };
}

const quiet = () => newStage({ checkpoints: { automatic: false } });

describe("the newest checkpoint after a loss", () => {
  test("is named, with whether files have changed since", async () => {
    for (const [after, differs] of [
      ["true", false],
      ["echo two > file", true],
    ] as const) {
      const stage = quiet();
      const { lease, checkpoint } = await crashed(stage, undefined, after);
      await stage.until(lease.sandbox.exec("true"));
      const { id, label, takenAt } = checkpoint;
      expect(lease.recovery).toMatchObject({ kind: "restored", checkpoint: { id, label, takenAt, differs } });
      await lease.release();
    }
  });

  test("is the one that the loss itself was followed by", async () => {
    const stage = newStage({ checkpoints: { quietMs: 3_600_000 } });
    const { fleet, lease, checkpoint } = await crashed(stage, undefined, "echo two > file");
    await stage.until(lease.sandbox.exec("true"));
    const [newest] = await fleet.checkpoints.list(T1);
    expect(newest?.id).not.toBe(checkpoint.id);
    expect(lease.recovery.checkpoint).toMatchObject({ id: newest?.id, differs: false });
    await lease.release();
  });

  test("is absent for a thread without one, and where nothing was lost", async () => {
    const stage = quiet();
    const { fleet } = await stage.open();
    await (await fleet.acquire(T1)).release();
    await stage.until(fleet.destroy(T1));
    const lease = await stage.until(fleet.acquire(T1));
    expect(lease.recovery.kind).toBe("restored");
    expect(lease.recovery.checkpoint).toBe(undefined);
    await lease.checkpoint({ label: "one" });
    const other = await fleet.acquire(T1);
    expect(other.recovery).not.toHaveProperty("checkpoint");
    await other.release();
    await lease.release();
  });

  test("does not keep an acquire waiting when comparing takes long", async () => {
    const stage = quiet();
    const endings: AbortSignal[] = [];
    const diff = (_owner: unknown, _range: unknown, { signal }: { readonly signal: AbortSignal }) => {
      endings.push(signal);
      return new Promise<never>(() => {});
    };
    const { fleet, world, lease, checkpoint, eventsOf } = await crashed(stage, (parts) => intercepted(parts, { diff }));
    await lease.release();
    const before = world.monotonicMs();
    await using next = await stage.until(fleet.acquire(T1));
    expect(next.recovery.checkpoint).toMatchObject({ id: checkpoint.id, differs: null });
    expect(world.monotonicMs() - before).toBeLessThan(2_000);
    expect(endings.map(({ aborted }) => aborted)).toEqual([true]);
    expect(eventsOf("close-failed")).toEqual([]);
  });

  test("that cannot be read is an event, and the lease comes without it", async () => {
    const stage = quiet();
    const newest = () => Promise.reject(new Error("the record is damaged"));
    const { lease, eventsOf } = await crashed(stage, (parts) => intercepted(parts, { newest }));
    expect((await stage.until(lease.sandbox.exec("cat file"))).stdout).toBe("one\n");
    expect(lease.recovery).not.toHaveProperty("checkpoint");
    expect(eventsOf("close-failed")[0]?.problem).toContain("the record is damaged");
    await lease.release();
  });
});
