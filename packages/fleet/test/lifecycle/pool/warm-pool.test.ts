/**
 * The warm pool: blanks are ready before the first acquire, go to any thread, and never take a place that a caller
 * needs.
 */

import { describe, expect, test } from "vitest";
import type { Lease } from "../../../src/fleet.ts";
import { newStage, newStageOn, STORE_KINDS, type Stage } from "../../support/stage.ts";
import { watched } from "../../support/virtual-time.ts";

async function blanksOf(stage: Stage) {
  return (await stage.records()).filter(({ thread, state }) => thread === null && state === "ready");
}

describe.each(STORE_KINDS)("a blank in the %s store", (kind) => {
  test("is bound to the thread that asks, faster than a create, and the event says so", async () => {
    const stage = newStageOn(kind, { pool: { default: 1 } });
    const { fleet, eventsOf, backend } = await stage.open();
    await stage.advance(100);
    const [blank] = await blanksOf(stage);
    backend.hang("create");
    await using lease = await stage.until(fleet.acquire({ thread: "t1" }), 1_000);
    expect(lease.sandbox.id).toBe(blank?.sandboxId);
    expect(lease.generation).toBeGreaterThan(blank!.generation);
    expect(lease.recovery.kind).toBe("empty");
    expect(eventsOf("lease-acquired").map(({ path }) => path)).toEqual(["blank"]);
    expect(eventsOf("sandbox-bound")).toMatchObject([{ thread: "t1", from: blank?.generation }]);
    const record = await stage.recordOf("t1");
    expect(record).toMatchObject({ sandboxId: blank?.sandboxId, boundFrom: null });
    expect(record?.token).not.toBe(blank?.token);
    await lease.sandbox.files.write("/mnt/user-data/workspace/x", "1");
    expect((await lease.sandbox.exec("cat x")).stdout).toBe("1");
  });

  test("whose daemon could not be told of its thread is told by the next acquire, and not replaced", async () => {
    const stage = newStageOn(kind, { pool: { default: 1 } });
    const { fleet, backend } = await stage.open();
    await stage.advance(100);
    const [blank] = await blanksOf(stage);
    const mend = backend.fail("rebind", new Error("connection reset"));
    await stage.refusal("sandbox_unreachable", fleet.acquire({ thread: "t1" }));
    mend();
    await using lease = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(lease.sandbox.id).toBe(blank?.sandboxId);
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
  });

  test("takes the thread's workspace in, and gives it back when the sandbox ends", async () => {
    const stage = newStageOn(kind, { pool: { default: 1 } });
    const { fleet } = await stage.open();
    for (const text of ["first", "second", "third"]) {
      await stage.advance(6_000);
      const lease = await stage.until(fleet.acquire({ thread: "t1" }));
      await lease.sandbox.files.append("/mnt/user-data/workspace/log", `${text}\n`);
      await stage.until(lease.release());
      expect(await stage.until(fleet.destroy({ thread: "t1" }))).toBe("stopped");
    }
    await using lease = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(await lease.sandbox.files.readText("/mnt/user-data/workspace/log")).toBe("first\nsecond\nthird\n");
  });
});

describe("the pool", () => {
  test("is filled in the background when the fleet opens", async () => {
    const stage = newStage({ pool: { default: 3 } });
    const { eventsOf } = await stage.open();
    await stage.settle();
    expect(await blanksOf(stage)).toHaveLength(3);
    expect(eventsOf("sandbox-created").every(({ blank }) => blank)).toBe(true);
  });

  test("larger than what is made at once is filled without waiting for the next look", async () => {
    const stage = newStage({ pool: { default: 11 } });
    await stage.open();
    await stage.advance(100);
    expect(await blanksOf(stage)).toHaveLength(11);
  });

  test("is refilled soon after a blank was bound, off the caller's path", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const { fleet, backend } = await stage.open();
    await stage.settle();
    const gate = backend.hang("create");
    const before = stage.time.now;
    await using _lease = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(stage.time.now).toBe(before);
    expect(gate.arrived).toBe(0);
    await stage.time.advance(250);
    await stage.settle();
    expect(gate.arrived).toBe(1);
    gate.open();
    await stage.settle();
    expect(await blanksOf(stage)).toHaveLength(1);
  });

  test("never goes over the limit, nor takes the place of who waits for room", async () => {
    const stage = newStage({ pool: { default: 3 }, limits: { max: 3 } });
    const { fleet } = await stage.open();
    await stage.settle();
    let most = 0;
    const leases: Lease[] = [];
    for (const thread of ["a", "b", "c"]) {
      leases.push(await stage.until(fleet.acquire({ thread })));
      await stage.advance(6_000);
      most = Math.max(most, stage.objects().length);
    }
    expect(most).toBe(3);
    const waiting = watched(fleet.acquire({ thread: "d" }));
    await stage.advance(1_000);
    await stage.until(fleet.destroy({ thread: "a" }, { force: true }));
    await (await stage.until(waiting.promise, 5_000)).release();
    expect(stage.objects()).toHaveLength(3);
    expect(leases).toHaveLength(3);
  });

  test("never goes over the limit in soft mode either", async () => {
    const stage = newStage({ pool: { default: 2 }, limits: { mode: "soft", max: 2 } });
    const { fleet } = await stage.open();
    await stage.settle();
    await using _a = await fleet.acquire({ thread: "a" });
    await using _b = await fleet.acquire({ thread: "b" });
    await stage.advance(30_000);
    expect(stage.objects()).toHaveLength(2);
  });

  test.each(["hard", "soft"] as const)("never goes over the %s limit, not even on an old list", async (mode) => {
    const stage = newStage({ limits: { mode, max: 3 } });
    const late = new Promise<void>((resolve) => stage.engineWorld.timer(1_000, resolve));
    const slow = await stage.open({ pool: { default: 2 } }, ({ store }) => {
      store.on("list", async (proceed, filter) => {
        const seen = await proceed();
        if (filter === undefined) await late;
        return seen;
      });
    });
    const quick = await stage.open({ pool: { default: 2 } });
    await using _lease = await quick.fleet.acquire({ thread: "t1" });
    await stage.advance(900);
    expect(stage.objects()).toHaveLength(3);
    await stage.advance(200);
    expect(stage.objects()).toHaveLength(3);
    expect(slow.backend.callsOf("create")).toHaveLength(0);
  });

  test("serves as many threads at once as it has blanks", async () => {
    const stage = newStage({ pool: { default: 3 } });
    const { fleet, eventsOf } = await stage.open();
    await stage.settle();
    const leases = await stage.until(Promise.all(["a", "b", "c"].map((thread) => fleet.acquire({ thread }))));
    expect(eventsOf("lease-acquired").map(({ path }) => path)).toEqual(["blank", "blank", "blank"]);
    expect(new Set(leases.map(({ sandbox }) => sandbox.id)).size).toBe(3);
    expect(stage.engine.leftovers().markers).toBe(3);
  });

  test("never gives one blank to two threads, at whichever instance they ask", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const [a, b] = [await stage.open(), await stage.open()];
    await stage.settle();
    const calls = Array.from({ length: 10 }, (_, index) =>
      (index % 2 === 0 ? a : b).fleet.acquire({ thread: `t${index}` }),
    );
    const leases = await stage.until(Promise.all(calls));
    expect(new Set(leases.map(({ sandbox }) => sandbox.id)).size).toBe(10);
    for (const [index, lease] of leases.entries())
      await lease.sandbox.files.write("/mnt/user-data/workspace/mine", `${index}`);
    const texts = await Promise.all(
      leases.map(({ sandbox }) => sandbox.files.readText("/mnt/user-data/workspace/mine")),
    );
    expect(texts).toEqual(leases.map((_, index) => `${index}`));
  });

  test("replaces blanks of a blueprint that has changed", async () => {
    const stage = newStage();
    const old = await stage.open({ pool: { default: 2 }, blueprints: { default: { environment: { V: "1" } } } });
    await stage.settle();
    const before = await blanksOf(stage);
    await stage.until(old.fleet.close());
    const now = await stage.open({ pool: { default: 2 }, blueprints: { default: { environment: { V: "2" } } } });
    await stage.advance(10_000);
    const after = await blanksOf(stage);
    expect(after).toHaveLength(2);
    expect(after.map(({ sandboxId }) => sandboxId)).not.toContain(before[0]?.sandboxId);
    expect(now.eventsOf("sandbox-stopping").map(({ reason }) => reason)).toEqual([
      "stale-blueprint",
      "stale-blueprint",
    ]);
    await using lease = await stage.until(now.fleet.acquire({ thread: "t1" }));
    expect((await lease.sandbox.exec("echo $V")).stdout).toBe("2\n");
  });

  test("of two configurations side by side leaves each other's blanks alone during a rolling update", async () => {
    const stage = newStage({ orphanTimeoutMs: 60_000 });
    const old = await stage.open({ pool: { default: 1 }, blueprints: { default: { environment: { V: "1" } } } });
    const next = await stage.open({ pool: { default: 1 }, blueprints: { default: { environment: { V: "2" } } } });
    await stage.advance(30_000);
    expect(await blanksOf(stage)).toHaveLength(2);
    expect([...old.eventsOf("sandbox-stopping"), ...next.eventsOf("sandbox-stopping")]).toEqual([]);
    await stage.until(old.fleet.close());
    await stage.advance(60_000);
    expect(await blanksOf(stage)).toHaveLength(1);
  });

  test("ends the surplus after its number was lowered", async () => {
    const stage = newStage();
    const big = await stage.open({ pool: { default: 4 } });
    await stage.settle();
    await stage.until(big.fleet.close());
    const small = await stage.open({ pool: { default: 1 } });
    await stage.advance(10_000);
    expect(await blanksOf(stage)).toHaveLength(1);
    expect(small.eventsOf("sandbox-stopping").map(({ reason }) => reason)).toEqual(Array(3).fill("surplus"));
  });

  test("replaces a blank that died, and nobody gets a dead one", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const { fleet } = await stage.open();
    await stage.settle();
    const [blank] = await blanksOf(stage);
    stage.engine.suspendEvents();
    stage.killSandbox(blank!.sandboxId);
    await using lease = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(lease.sandbox.id).not.toBe(blank?.sandboxId);
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
    await stage.advance(10_000);
    expect(await blanksOf(stage)).toHaveLength(1);
    expect(stage.objects().every(({ liveness }) => liveness === "alive")).toBe(true);
  });

  test("goes on after a create that failed", async () => {
    const stage = newStage({ pool: { default: 2 } });
    const { eventsOf } = await stage.open({}, ({ backend }) => {
      let failures = 3;
      backend.on("create", (proceed) => (--failures >= 0 ? Promise.reject(new Error("no memory")) : proceed()));
    });
    await stage.advance(30_000);
    expect(await blanksOf(stage)).toHaveLength(2);
    expect(eventsOf("housekeeping-failed").map(({ task }) => task)).toContain("pool");
  });

  test("is shared: two instances keep its number together", async () => {
    const stage = newStage({ pool: { default: 2 } });
    await stage.open();
    await stage.open();
    await stage.advance(30_000);
    expect(await blanksOf(stage)).toHaveLength(2);
  });
});
