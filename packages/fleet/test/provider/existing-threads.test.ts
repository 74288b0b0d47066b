/**
 * Acquiring only an existing thread, as a preview link or an AIO URL does: a thread without a sandbox and files is
 * refused, also when it is purged at any moment of the acquire.
 */

import type { ThreadId, UserId } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { ThreadUse } from "../../src/gateway/thread-use.ts";
import { newStage, type Stage } from "../support/stage.ts";

const FILE = "/mnt/user-data/workspace/file";

async function stagedThread(stage: Stage) {
  const [a, b] = [await stage.open(), await stage.open()];
  const lease = await a.fleet.acquire({ thread: "t1" });
  await lease.sandbox.files.write(FILE, "kept");
  await lease.release();
  return { a, b };
}

/** Nothing was created, or all of it is gone. */
async function expectNothing(stage: Stage) {
  await stage.advance(60_000);
  expect([stage.objects(), await stage.records()]).toEqual([[], []]);
  expect(stage.engine.leftovers()).toMatchObject({ homes: 0, slots: 0, markers: 0 });
}

describe("a thread that exists", () => {
  test("is acquired with its sandbox, and with its files where that was stopped", async () => {
    const stage = newStage();
    const { a, b } = await stagedThread(stage);
    const first = await stage.until(b.fleet.acquire({ thread: "t1", existing: true }));
    expect(first.recovery.kind).toBe("same");
    await first.release();
    await stage.until(a.fleet.destroy({ thread: "t1" }));
    await using next = await stage.until(b.fleet.acquire({ thread: "t1", existing: true }));
    expect(await next.sandbox.files.readText(FILE)).toBe("kept");
  });

  test("is waited for while its sandbox is being stopped", async () => {
    const stage = newStage();
    const { a, b } = await stagedThread(stage);
    const gate = a.backend.hang("destroy");
    const stopping = a.fleet.destroy({ thread: "t1" });
    await stage.settle();
    expect(gate.arrived).toBe(1);
    const acquiring = b.fleet.acquire({ thread: "t1", existing: true });
    await stage.advance(100);
    gate.open();
    await stage.until(stopping);
    await using lease = await stage.until(acquiring);
    expect(await lease.sandbox.files.readText(FILE)).toBe("kept");
  });
});

describe("a thread that does not exist", () => {
  test("is refused and not made, from a blank neither", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const { fleet } = await stage.open();
    await stage.advance(10_000);
    const error = await stage.refusal("thread_not_found", fleet.acquire({ thread: "t1", existing: true }));
    expect(error.details).toEqual({ thread: "t1" });
    expect(await stage.until(fleet.findThread({ thread: "t1" }))).toBeNull();
    expect(await stage.records()).toMatchObject([{ thread: null }]);
  });

  test("evicts nothing to make room", async () => {
    const stage = newStage({ limits: { max: 1 } });
    const { fleet } = await stage.open();
    await (await fleet.acquire({ thread: "other" })).release();
    await stage.refusal("thread_not_found", fleet.acquire({ thread: "t1", existing: true }));
    expect(await stage.records()).toMatchObject([{ thread: "other", state: "ready" }]);
  });

  test("is begun for an ordinary caller that joined the opening", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    const gate = store.hang("take");
    const refused = stage.refusal("thread_not_found", fleet.acquire({ thread: "t1", existing: true }));
    const ordinary = fleet.acquire({ thread: "t1" });
    await stage.settle();
    gate.open();
    await refused;
    await using lease = await stage.until(ordinary);
    expect((await lease.sandbox.exec("echo begun")).stdout).toBe("begun\n");
  });
});

describe("a thread that is purged", () => {
  const steps = ["take", "reserve"] as const;
  test.each(steps)("while it is acquired stays purged: before %s", async (step) => {
    const stage = newStage();
    const { a, b } = await stagedThread(stage);
    if (step === "reserve") await stage.until(b.fleet.destroy({ thread: "t1" }));
    const gate = a.store.hang(step);
    const refused = stage.refusal("thread_not_found", a.fleet.acquire({ thread: "t1", existing: true }));
    await stage.settle();
    expect(gate.arrived).toBe(1);
    expect(await stage.until(b.fleet.destroy({ thread: "t1" }, { purge: true }))).toBe("stopped");
    gate.open();
    await refused;
    await expectNothing(stage);
  });

  test("while it is being made is purged, and not made again", async () => {
    const stage = newStage();
    const { a, b } = await stagedThread(stage);
    await stage.until(b.fleet.destroy({ thread: "t1" }));
    const gate = a.backend.hang("create");
    const refused = stage.refusal("thread_not_found", a.fleet.acquire({ thread: "t1", existing: true }));
    await stage.settle();
    const purging = b.fleet.destroy({ thread: "t1" }, { purge: true, force: true });
    await stage.advance(100);
    gate.open();
    expect(await stage.until(purging)).toBe("stopped");
    await refused;
    await expectNothing(stage);
  });

  test("stays purged for a link that is opened at that moment", async () => {
    const stage = newStage();
    const { a, b } = await stagedThread(stage);
    const gate = a.store.hang("take");
    const key = { user: "default" as UserId, thread: "t1" as ThreadId };
    const refused = stage.refusal(
      "thread_not_found",
      new ThreadUse(a.fleet, a.world, { keepLeasesMs: 1_000 }).acquireExisting(key, "a link"),
    );
    await stage.settle();
    expect(gate.arrived).toBe(1);
    await stage.until(b.fleet.destroy({ thread: "t1" }, { purge: true }));
    gate.open();
    await refused;
    await expectNothing(stage);
  });
});
