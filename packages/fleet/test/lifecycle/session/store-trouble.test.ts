/** An unavailable store, and an emptied store. Held leases go on; nothing is destroyed on a guess. */

import { SandlotError } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { newStage } from "../../support/stage.ts";
import { watched } from "../../support/virtual-time.ts";

const LIFETIME_MS = 15_000;
const config = { sessionLifetimeMs: LIFETIME_MS, orphanTimeoutMs: 30_000, idleTimeoutMs: 0 } as const;
const down = () => new SandlotError("store_unavailable", { operation: "any", problem: "down", retryAfterMs: 1_000 });

describe("while the store does not answer", () => {
  test("held leases go on working, new acquires are refused with store_unavailable, and nothing is destroyed", async () => {
    const stage = newStage(config);
    const { fleet, store, backend, typesOf } = await stage.open();
    const lease = await fleet.acquire({ thread: "held" });
    await (await fleet.acquire({ thread: "parked" })).release();
    const restore = store.failAll(down);
    await stage.advance(10 * LIFETIME_MS);
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
    expect(fleet.get(lease.sandbox.id)).toBeDefined();
    for (const thread of ["held", "parked", "new"]) {
      const error = await stage.refusal("store_unavailable", fleet.acquire({ thread }));
      expect(error.retryable).toBe(true);
    }
    expect(backend.callsOf("destroy")).toHaveLength(0);
    expect(typesOf("store-lost", "lease-lost")).toEqual(["store-lost"]);
    restore();
    await stage.advance(2 * LIFETIME_MS);
    expect(typesOf("store-lost", "store-recovered", "lease-lost")).toEqual(["store-lost", "store-recovered"]);
    await using again = await stage.until(fleet.acquire({ thread: "held" }));
    expect(again.sandbox.id).toBe(lease.sandbox.id);
    expect(stage.objects()).toHaveLength(2);
    await lease.release();
  });

  test("a held thread is leased again from memory as long as the last beat is young", async () => {
    const stage = newStage(config);
    const { fleet, store } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    store.failAll(down);
    const second = await fleet.acquire({ thread: "t1" });
    expect(second.sandbox.id).toBe(lease.sandbox.id);
  });

  test("a sandbox that crashes is lost at once, and its lease recovers when the store is back", async () => {
    const stage = newStage(config);
    const { fleet, store } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.files.write("/mnt/user-data/workspace/x", "kept");
    const restore = store.failAll(down);
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    await stage.refusal("store_unavailable", lease.sandbox.exec("true"));
    restore();
    await stage.advance(LIFETIME_MS);
    expect(await stage.until(lease.sandbox.files.readText("/mnt/user-data/workspace/x"))).toBe("kept");
    expect(stage.objects()).toHaveLength(1);
  });

  test("an answer that got lost after a reservation leaves nothing for good", async () => {
    const stage = newStage(config);
    const { fleet, store } = await stage.open();
    const restore = store.on("take", async (proceed) => {
      await proceed();
      throw down();
    });
    await stage.refusal("store_unavailable", fleet.acquire({ thread: "t1" }));
    restore();
    await stage.advance(LIFETIME_MS);
    expect(await stage.records()).toEqual([]);
    await using lease = await stage.until(fleet.acquire({ thread: "t1" }));
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
  });

  test("an answer that got lost after the publication leaves a sandbox that is parked, not held for ever", async () => {
    const stage = newStage(config);
    const { fleet, store } = await stage.open();
    const restore = store.on("publish", async (proceed) => {
      await proceed();
      throw down();
    });
    await stage.refusal("store_unavailable", fleet.acquire({ thread: "t1" }));
    restore();
    await stage.advance(LIFETIME_MS);
    const record = await stage.recordOf("t1");
    expect(record === null ? {} : record.holders).toEqual({});
    expect(stage.objects()).toHaveLength((await stage.records()).length);
  });

  test("an answer that got lost after a hold is healed by the next beat", async () => {
    const stage = newStage(config);
    const { fleet, store } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    const restore = store.on("take", async (proceed) => {
      await proceed();
      throw down();
    });
    await stage.refusal("store_unavailable", fleet.acquire({ thread: "t1" }));
    restore();
    await stage.advance(LIFETIME_MS);
    expect((await stage.recordOf("t1"))?.holders).toEqual({});
  });
});

describe("after the store was emptied", () => {
  test("holders register again and keep their sandboxes, others are told store_recovering", async () => {
    const stage = newStage(config);
    const [a, b] = [await stage.open(), await stage.open()];
    const lease = await a.fleet.acquire({ thread: "t1" });
    const before = lease.generation;
    stage.tables.empty();
    const other = watched(b.fleet.acquire({ thread: "t2" }));
    const error = await stage.refusal("store_recovering", other.promise);
    expect(error.details.retryAfterMs).toBeGreaterThan(0);
    await stage.advance(LIFETIME_MS / 2);
    expect(a.eventsOf("epoch-changed")).toMatchObject([{ restored: 1, lost: 0 }]);
    expect(await stage.recordOf("t1")).toMatchObject({ sandboxId: lease.sandbox.id, generation: before });
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
    expect(lease.generation).toBe(before);
    await stage.advance(2 * LIFETIME_MS);
    await using next = await stage.until(b.fleet.acquire({ thread: "t2" }));
    expect(next.generation).toBeGreaterThan(before);
    await lease.release();
    expect((await stage.recordOf("t1"))?.holders).toEqual({});
  });

  test("what was parked is adopted through its marker after a lifetime, and serves its own thread", async () => {
    const stage = newStage(config);
    const { fleet, eventsOf } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.files.write("/mnt/user-data/workspace/x", "kept");
    await lease.release();
    stage.tables.empty();
    // A holder would have a lifetime to register again.
    await stage.advance(LIFETIME_MS - 1_000);
    expect(eventsOf("sandbox-adopted")).toEqual([]);
    await stage.advance(10 * LIFETIME_MS);
    expect(eventsOf("sandbox-adopted")).toMatchObject([{ sandboxId: lease.sandbox.id, thread: "t1" }]);
    await using again = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(again.sandbox.id).toBe(lease.sandbox.id);
    expect(again.generation).toBe(lease.generation);
    expect(await again.sandbox.files.readText("/mnt/user-data/workspace/x")).toBe("kept");
  });

  test("a blank is ended after a lifetime: adoption never makes one", async () => {
    const stage = newStage(config);
    const pooled = await stage.open({ pool: { default: 1 } });
    await stage.settle();
    await stage.until(pooled.fleet.close());
    stage.tables.empty();
    const { eventsOf } = await stage.open();
    await stage.advance(LIFETIME_MS - 1_000);
    expect(stage.objects()).toHaveLength(1);
    await stage.advance(10 * LIFETIME_MS);
    expect(stage.objects()).toEqual([]);
    expect(eventsOf("sandbox-adopted")).toEqual([]);
    expect(eventsOf("sandbox-stopped").map(({ reason }) => reason)).toEqual(["orphaned"]);
    expect(stage.engine.leftovers()).toMatchObject({ slots: 0, markers: 0 });
  });

  test("what is dead is ended, and its workspace is kept", async () => {
    const stage = newStage(config);
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.files.write("/mnt/user-data/workspace/x", "kept");
    await lease.release();
    stage.engine.suspendEvents();
    stage.tables.empty();
    stage.killSandbox(lease.sandbox.id);
    await stage.advance(10 * LIFETIME_MS);
    expect(stage.objects()).toEqual([]);
    await using next = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(next.recovery.kind).toBe("restored");
    expect(await next.sandbox.files.readText("/mnt/user-data/workspace/x")).toBe("kept");
  });

  test("what is held and dead is not put back, and its lease goes on in the next generation", async () => {
    const stage = newStage(config);
    const { fleet, backend, store, eventsOf } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.files.write("/mnt/user-data/workspace/x", "kept");
    const before = lease.generation;
    // The engine could not report its death; it can when the store turns out to be lost.
    const answer = backend.on("probe", async () => "unknown" as const);
    stage.engine.suspendEvents();
    stage.killSandbox(lease.sandbox.id);
    stage.tables.empty();
    await stage.settle();
    answer();
    await stage.advance(LIFETIME_MS / 2);
    expect(eventsOf("epoch-changed")).toMatchObject([{ restored: 0, lost: 1 }]);
    expect(store.callsOf("restore")).toEqual([]);
    await stage.advance(3 * LIFETIME_MS);
    expect(await stage.until(lease.sandbox.files.readText("/mnt/user-data/workspace/x"))).toBe("kept");
    expect(lease.generation).toBeGreaterThan(before);
    await lease.release();
  });

  test("an engine that does not answer keeps nobody from putting back what it holds", async () => {
    const stage = newStage(config);
    const { fleet, backend } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    const gate = backend.hang("probe", { deaf: true });
    stage.tables.empty();
    await stage.advance(LIFETIME_MS / 2);
    expect(gate.arrived).toBe(1);
    expect(await stage.recordOf("t1")).toMatchObject({ sandboxId: lease.sandbox.id, generation: lease.generation });
    gate.open();
  });

  test("a bound blank is adopted for its thread, with the workspace in its slot", async () => {
    const stage = newStage(config);
    const { fleet } = await stage.open({ pool: { default: 1 } });
    await stage.settle();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.files.write("/mnt/user-data/workspace/x", "kept");
    await lease.release();
    stage.tables.empty();
    await stage.advance(10 * LIFETIME_MS);
    await using again = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(again.sandbox.id).toBe(lease.sandbox.id);
    expect(await again.sandbox.files.readText("/mnt/user-data/workspace/x")).toBe("kept");
  });

  test("a new fleet with an empty engine starts at once", async () => {
    const stage = newStage(config);
    const { fleet } = await stage.open();
    const before = stage.time.now;
    await using _lease = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(stage.time.now).toBe(before);
  });

  test("a new fleet over an engine that has something of its own waits a lifetime for holders first", async () => {
    const stage = newStage(config);
    const old = await stage.open();
    await (await old.fleet.acquire({ thread: "t1" })).release();
    await stage.until(old.fleet.close());
    stage.tables.empty();
    const { fleet } = await stage.open();
    await stage.refusal("store_recovering", fleet.acquire({ thread: "t2" }));
    await stage.advance(2 * LIFETIME_MS);
    await using _lease = await stage.until(fleet.acquire({ thread: "t2" }));
  });

  test("homes that recovery cannot read are reported as an event", async () => {
    const stage = newStage(config);
    const { backend, eventsOf } = await stage.open();
    const { workspaces } = backend.proxy;
    const latestGeneration: typeof workspaces.latestGeneration = async (onProblem) => {
      onProblem?.("1 homes cannot be read, such as planted");
      return 0;
    };
    Object.assign(workspaces, { latestGeneration });
    stage.tables.empty();
    await stage.advance(3 * LIFETIME_MS);
    expect(eventsOf("housekeeping-failed")).toMatchObject([
      { task: "recovery", problem: "1 homes cannot be read, such as planted" },
    ]);
  });

  test("generations go on growing", async () => {
    const stage = newStage(config);
    const { fleet } = await stage.open();
    const seen: number[] = [];
    for (let round = 0; round < 3; round += 1) {
      const lease = await stage.until(fleet.acquire({ thread: "t1" }));
      seen.push(lease.generation);
      await lease.release();
      await stage.until(fleet.destroy({ thread: "t1" }));
      stage.tables.empty();
      await stage.advance(3 * LIFETIME_MS);
    }
    expect(seen).toEqual([...new Set(seen)].sort((x, y) => x - y));
  });
});

test("a destroy whose look is answered when a lost store has recovered looks again", async () => {
  const stage = newStage({ sessionLifetimeMs: 15_000 });
  const { fleet, store } = await stage.open();
  await (await stage.until(fleet.acquire({ thread: "t1" }))).release();
  await stage.loseStore();
  const gate = store.hang("find", { when: "after" });
  const destroying = watched(fleet.destroy({ thread: "t1" }, { timeoutMs: 120_000 }));
  await stage.advance(60_000);
  expect((await stage.recordOf("t1"))?.state).toBe("ready");
  gate.open();
  expect(await stage.until(destroying.promise)).toBe("stopped");
  expect(stage.objects()).toEqual([]);
});

/**
 * A thread whose files are at home, a store lost while the wall clock was set back, and an instance that knew neither.
 */
async function afterALossInThePast() {
  const stage = newStage({ sessionLifetimeMs: LIFETIME_MS });
  const before = await stage.open();
  // The first store counted from an hour later than the second will.
  stage.tables.putGeneration(stage.tables.now() + 3_600_000);
  const lease = await stage.until(before.fleet.acquire({ thread: "t1" }));
  const used = lease.generation;
  await lease.sandbox.files.write("/mnt/user-data/workspace/kept", "kept");
  await lease.release();
  expect(await stage.until(before.fleet.destroy({ thread: "t1" }))).toBe("stopped");
  await stage.until(before.fleet.close());
  await stage.loseStore();
  expect(stage.tables.generation()).toBeLessThan(used);
  return { stage, used, after: await stage.open() };
}

describe("a store that was lost while the wall clock was set back", () => {
  test("gives no generation that a workspace has left behind", async () => {
    const { stage, used, after } = await afterALossInThePast();
    await using lease = await stage.until(after.fleet.acquire({ thread: "t2" }));
    expect(lease.generation).toBeGreaterThan(used);
  });

  test("keeps the promise of a forced purge of what is just being made", async () => {
    const { stage, after } = await afterALossInThePast();
    const creating = after.backend.hang("create");
    const acquiring = watched(after.fleet.acquire({ thread: "t1" }));
    await stage.settle();
    expect(await stage.until(after.fleet.destroy({ thread: "t1" }, { force: true, purge: true, timeoutMs: 100 }))).toBe(
      "stopping",
    );
    creating.open();
    await using lease = await stage.until(acquiring.promise);
    expect(lease.recovery.kind).toBe("empty");
    await stage.refusal("file_not_found", lease.sandbox.files.readText("/mnt/user-data/workspace/kept"));
  });

  test("purges the files of a thread that has no sandbox", async () => {
    const { stage, after } = await afterALossInThePast();
    expect(await stage.until(after.fleet.destroy({ thread: "t1" }, { purge: true }))).toBe("stopped");
    await using lease = await stage.until(after.fleet.acquire({ thread: "t1" }));
    expect(lease.recovery.kind).toBe("empty");
  });
});
