/** Admission through the whole fleet: hard and soft limits, waiting in turn, eviction, and the text of a refusal. */

import { describe, expect, test } from "vitest";
import type { Lease } from "../../../src/fleet.ts";
import { type Instance, newStage, type Stage } from "../../support/stage.ts";
import { watched } from "../../support/virtual-time.ts";

async function parked(stage: Stage, { fleet }: Instance, ...threads: readonly string[]): Promise<string[]> {
  const ids: string[] = [];
  for (const thread of threads) {
    const lease = await stage.until(fleet.acquire({ thread }));
    ids.push(lease.sandbox.id);
    await stage.until(lease.release());
    await stage.advance(10);
  }
  return ids;
}

describe("the hard limit", () => {
  test("makes the next caller wait until there is room, and then serves it", async () => {
    const stage = newStage({ limits: { max: 2 } });
    const { fleet, eventsOf } = await stage.open();
    const [a, _b] = [await fleet.acquire({ thread: "a" }), await fleet.acquire({ thread: "b" })];
    const third = watched(fleet.acquire({ thread: "c" }));
    await stage.advance(5_000);
    expect(third.state).toBe("pending");
    expect(eventsOf("acquire-queued")).toMatchObject([{ user: "default", thread: "c", queued: 1 }]);
    await a.release();
    const lease = await stage.until(third.promise);
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
    expect(stage.objects()).toHaveLength(2);
    await stage.refusal("acquire_timeout", fleet.acquire({ thread: "d", timeoutMs: 100 }));
  });

  test("counts a sandbox that is stopping until the engine has confirmed", async () => {
    const stage = newStage({ limits: { max: 1 } });
    const instance = await stage.open();
    const { fleet, backend } = instance;
    await parked(stage, instance, "a");
    const gate = backend.hang("destroy");
    const next = watched(fleet.acquire({ thread: "b" }));
    await stage.advance(3_000);
    expect(next.state).toBe("pending");
    expect(backend.callsOf("create")).toHaveLength(1);
    gate.open();
    await (await stage.until(next.promise)).release();
    expect(stage.objects()).toHaveLength(1);
  });

  test("is never exceeded by many concurrent acquires at two instances, and all of them are served", async () => {
    const stage = newStage({ limits: { max: 4, queueMax: 100 } });
    const instances = [await stage.open(), await stage.open()];
    let most = 0;
    const calls = Array.from({ length: 60 }, async (_, index) => {
      const { fleet } = instances[index % 2]!;
      const lease = await fleet.acquire({ user: `u${index % 5}`, thread: `t${index % 30}` });
      most = Math.max(most, stage.objects().length, (await stage.records()).length);
      await lease.sandbox.exec("sleep 0.5");
      await lease.release();
    });
    await stage.until(Promise.all(calls));
    expect(most).toBe(4);
  });

  test("per user is kept, and does not hold up another user", async () => {
    const stage = newStage({ limits: { max: 10, maxPerUser: 2 } });
    const { fleet } = await stage.open();
    const first = await fleet.acquire({ user: "alice", thread: "a1" });
    await fleet.acquire({ user: "alice", thread: "a2" });
    const third = watched(fleet.acquire({ user: "alice", thread: "a3" }));
    await stage.settle();
    const bob = await stage.until(fleet.acquire({ user: "bob", thread: "b1" }), 1_000);
    expect(third.state).toBe("pending");
    await first.release();
    await stage.until(third.promise);
    expect((await stage.records()).filter(({ user }) => user === "alice")).toHaveLength(2);
    await bob.release();
  });

  test("per user, with a caller that waits for it, evicts nothing of another user while the fleet has room", async () => {
    const stage = newStage({ limits: { max: 10, maxPerUser: 1 } });
    const { fleet, eventsOf } = await stage.open();
    await stage.until((await stage.until(fleet.acquire({ user: "carol", thread: "c1" }))).release());
    const first = await fleet.acquire({ user: "alice", thread: "a1" });
    const second = watched(fleet.acquire({ user: "alice", thread: "a2" }));
    await stage.advance(100);
    expect(second.state).toBe("pending");
    await stage.until(fleet.acquire({ user: "bob", thread: "b1" }), 1_000);
    expect(eventsOf("sandbox-stopping")).toEqual([]);
    // Another caller of the user that waits comes after it.
    const third = watched(fleet.acquire({ user: "alice", thread: "a3" }));
    await stage.advance(100);
    await first.release();
    await (await stage.until(second.promise)).release();
    await stage.until(third.promise);
  });

  test("per user, with a caller that waits for it, refuses no other user where nobody queues", async () => {
    const stage = newStage({ limits: { max: 10, maxPerUser: 1, onFull: "reject" } });
    const { fleet, backend } = await stage.open();
    await stage.until((await stage.until(fleet.acquire({ user: "alice", thread: "a1" }))).release());
    const gate = backend.hang("destroy");
    const second = watched(fleet.acquire({ user: "alice", thread: "a2" }));
    await stage.advance(100);
    expect(second.state).toBe("pending");
    await stage.until(fleet.acquire({ user: "bob", thread: "b1" }), 1_000);
    gate.open();
    await stage.until(second.promise);
  });

  test("of one user goes before that of every user, also without a limit", async () => {
    const users = { alice: { max: 2 }, carol: { max: 0 } };
    const stage = newStage({ limits: { max: 10, maxPerUser: 1, users }, pool: { default: 1 } });
    const { fleet } = await stage.open();
    await stage.settle();
    const granted: Record<string, number> = {};
    // `constructor` is a property of every object and has no limit of its own.
    for (const [user, most] of Object.entries({ alice: 2, bob: 1, carol: 4, constructor: 1 })) {
      for (let n = 0; n < most; n += 1) await stage.until(fleet.acquire({ user, thread: `t${n}` }));
      if (most < 4) await stage.refusal("acquire_timeout", fleet.acquire({ user, thread: "more", timeoutMs: 500 }));
      granted[user] = (await stage.records()).filter((record) => record.user === user).length;
    }
    expect(granted).toEqual({ alice: 2, bob: 1, carol: 4, constructor: 1 });
  });

  test("per user evicts that user's own parked sandbox only", async () => {
    const stage = newStage({ limits: { max: 10, maxPerUser: 1 } });
    const { fleet } = await stage.open();
    for (const user of ["alice", "bob"]) await (await fleet.acquire({ user, thread: "old" })).release();
    await using _lease = await stage.until(fleet.acquire({ user: "bob", thread: "new" }));
    const kept = (await stage.records()).map(({ user, thread }) => `${user}/${thread}`).sort();
    expect(kept).toEqual(["alice/old", "bob/new"]);
  });

  test("per user holds for a blank that is bound, too", async () => {
    const stage = newStage({ limits: { max: 10, maxPerUser: 1 }, pool: { default: 2 } });
    const { fleet } = await stage.open();
    await stage.settle();
    await using _first = await fleet.acquire({ user: "alice", thread: "a1" });
    await stage.refusal("acquire_timeout", fleet.acquire({ user: "alice", thread: "a2", timeoutMs: 500 }));
    expect((await stage.records()).filter(({ user }) => user === "alice")).toHaveLength(1);
  });
});

describe("a refusal", () => {
  test("with onFull reject comes at once, with the right counts", async () => {
    const stage = newStage({ limits: { max: 3, onFull: "reject" } });
    const { fleet, backend } = await stage.open();
    await using _a = await fleet.acquire({ thread: "a" });
    await using _b = await fleet.acquire({ thread: "b" });
    const gate = backend.hang("create");
    const creating = watched(fleet.acquire({ thread: "c" }));
    await stage.settle();
    const error = await stage.refusal("capacity_exhausted", fleet.acquire({ thread: "d" }));
    expect(error.details).toMatchObject({ scope: "fleet", max: 3, leased: 2, parked: 0, blank: 0, creating: 1 });
    expect(error.details).toMatchObject({ stopping: 0, queued: 0 });
    expect(error.details.retryAfterMs).toBeGreaterThan(0);
    expect(error.retryable).toBe(true);
    gate.open();
    await (await stage.until(creating.promise)).release();
  });

  test("for a user's limit counts that user's own sandboxes only", async () => {
    const stage = newStage({ limits: { max: 10, maxPerUser: 2, onFull: "reject" }, pool: { default: 1 } });
    const { fleet } = await stage.open();
    await stage.settle();
    for (const thread of ["b1", "b2"]) await fleet.acquire({ user: "bob", thread });
    for (const thread of ["a1", "a2"]) await fleet.acquire({ user: "alice", thread });
    const error = await stage.refusal("capacity_exhausted", fleet.acquire({ user: "alice", thread: "a3" }));
    expect(error.details).toMatchObject({ scope: "user", max: 2, leased: 2, parked: 0, blank: 0, creating: 0 });
  });

  test("with onFull reject still evicts what nobody uses", async () => {
    const stage = newStage({ limits: { max: 1, onFull: "reject" } });
    const instance = await stage.open();
    await parked(stage, instance, "a");
    await using lease = await stage.until(instance.fleet.acquire({ thread: "b" }));
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
  });

  test("with onFull reject comes also to the second of two callers for one place, not after its whole deadline", async () => {
    const stage = newStage({ limits: { max: 1, onFull: "reject" } });
    const instance = await stage.open();
    await parked(stage, instance, "a");
    const both = ["b", "c"].map((thread) => watched(instance.fleet.acquire({ thread })));
    await stage.advance(10_000);
    expect(both.map(({ state }) => state).sort()).toEqual(["fulfilled", "rejected"]);
    const refused = both.find(({ state }) => state === "rejected");
    await stage.refusal("capacity_exhausted", refused!.promise as Promise<Lease>);
  });

  test("comes when the queue is full, with scope queue and how many wait", async () => {
    const stage = newStage({ limits: { max: 1, queueMax: 2 } });
    const { fleet } = await stage.open();
    const held = await fleet.acquire({ thread: "held" });
    const waiting = ["a", "b"].map((thread) => watched(fleet.acquire({ thread })));
    await stage.settle();
    const error = await stage.refusal("capacity_exhausted", fleet.acquire({ thread: "c" }));
    expect(error.details).toMatchObject({ scope: "queue", max: 2, leased: 1, queued: 2 });
    await held.release();
    for (const { promise } of waiting) await (await stage.until(promise)).release();
  });

  test("a fleet without a queue still evicts what nobody uses", async () => {
    const stage = newStage({ limits: { max: 1, queueMax: 0 } });
    const instance = await stage.open();
    await parked(stage, instance, "a");
    await using lease = await stage.until(instance.fleet.acquire({ thread: "b" }));
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
  });

  test("a fleet without a queue refuses at once what does not fit", async () => {
    const stage = newStage({ limits: { max: 1, queueMax: 0 } });
    const { fleet } = await stage.open();
    await using _held = await fleet.acquire({ thread: "held" });
    const before = stage.time.now;
    await stage.refusal("capacity_exhausted", fleet.acquire({ thread: "b" }));
    expect(stage.time.now).toBe(before);
  });
});

describe("the queue", () => {
  test("is fair per user: who has twenty waiting does not starve who has one", async () => {
    const stage = newStage({ limits: { max: 1, queueMax: 50 }, acquireTimeoutMs: 600_000 });
    const { fleet } = await stage.open();
    const held = await fleet.acquire({ user: "holder", thread: "held" });
    const served: string[] = [];
    const one = async (user: string, thread: string) => {
      const lease = await fleet.acquire({ user, thread });
      served.push(`${user} ${thread}`);
      await lease.release();
    };
    const greedy = Array.from({ length: 20 }, (_, index) => one("greedy", `g${index}`));
    await stage.settle();
    const modest = one("modest", "m0");
    await stage.settle();
    await held.release();
    await stage.until(Promise.all([...greedy, modest]));
    expect(served.indexOf("modest m0")).toBeLessThanOrEqual(1);
    const ofGreedy = served.filter((name) => name.startsWith("greedy"));
    expect(ofGreedy).toEqual(Array.from({ length: 20 }, (_, index) => `greedy g${index}`));
  });

  test("is not overtaken by who comes later", async () => {
    const stage = newStage({ limits: { max: 1 } });
    const { fleet } = await stage.open();
    const held = await fleet.acquire({ thread: "held" });
    const order: string[] = [];
    const calls = ["a", "b", "c"].map(async (thread) => {
      const lease = await fleet.acquire({ thread });
      order.push(thread);
      await lease.release();
    });
    await stage.settle();
    // A caller that comes in the very turn in which room appears finds it before the waiting ones have looked again.
    const destroyed = stage.until(fleet.destroy({ thread: "held" }, { force: true }));
    calls.push(
      (async () => {
        await destroyed;
        const lease = await fleet.acquire({ thread: "d" });
        order.push("d");
        await lease.release();
      })(),
    );
    await stage.until(Promise.all(calls));
    expect(order).toEqual(["a", "b", "c", "d"]);
    await held.release();
  });

  test("is served although the store fails while room is being looked for", async () => {
    const stage = newStage({ limits: { max: 1 } });
    const { fleet, store } = await stage.open();
    const held = await fleet.acquire({ thread: "held" });
    const waiting = watched(fleet.acquire({ thread: "a" }));
    await stage.advance(100);
    // The response "full" arrives; the search for a sandbox to evict fails.
    const restore = store.on("list", (proceed, filter) =>
      filter === undefined ? Promise.reject(new Error("disk hiccup")) : proceed(),
    );
    await stage.advance(1_000);
    restore();
    await held.release();
    await stage.advance(2_000);
    expect(waiting.state).toBe("fulfilled");
  });

  test("of one instance is served when another makes room", async () => {
    const stage = newStage({ limits: { max: 1 } });
    const [a, b] = [await stage.open(), await stage.open()];
    const held = await a.fleet.acquire({ thread: "held" });
    const waiting = watched(b.fleet.acquire({ thread: "b" }));
    await stage.advance(1_000);
    await held.release();
    const before = stage.time.now;
    await stage.until(waiting.promise);
    expect(stage.time.now - before).toBeLessThan(2_000);
  });
});

describe("eviction", () => {
  test("takes blanks first, then the longest parked, a busy one last, and never a held one", async () => {
    const blueprints = { other: { environment: { OTHER: "1" } } };
    const stage = newStage({ limits: { max: 5 }, pool: { default: 1 }, blueprints, acquireTimeoutMs: 5_000 });
    const instance = await stage.open();
    const { fleet, eventsOf } = instance;
    await stage.settle();
    const runner = await stage.until(fleet.acquire({ thread: "busy" }));
    await runner.sandbox.exec("sleep 3000 &");
    await stage.until(runner.release());
    await stage.advance(10);
    const [older, newer] = await parked(stage, instance, "older", "newer");
    const held = await stage.until(fleet.acquire({ thread: "held" }));
    await stage.advance(250);
    await stage.settle();
    const blank = (await stage.records()).find(({ thread }) => thread === null);
    expect(await stage.records()).toHaveLength(5);
    const leases: Lease[] = [];
    for (const thread of ["n1", "n2", "n3", "n4"])
      leases.push(await stage.until(fleet.acquire({ thread, blueprint: "other" })));
    const evicted = eventsOf("sandbox-stopping");
    expect(evicted.map(({ sandboxId }) => sandboxId)).toEqual([blank?.sandboxId, older, newer, runner.sandbox.id]);
    expect(new Set(evicted.map(({ reason }) => reason))).toEqual(new Set(["evicted"]));
    await stage.refusal("acquire_timeout", fleet.acquire({ thread: "n5", blueprint: "other" }));
    expect((await held.sandbox.exec("true")).exitCode).toBe(0);
    expect(leases).toHaveLength(4);
  });

  test("evicts no more than is waited for", async () => {
    const stage = newStage({ limits: { max: 4 } });
    const instance = await stage.open();
    await parked(stage, instance, "a", "b", "c", "d");
    const gate = instance.backend.hang("destroy");
    const next = watched(instance.fleet.acquire({ thread: "new" }));
    await stage.advance(2_000);
    expect(instance.eventsOf("sandbox-stopping")).toHaveLength(1);
    gate.open();
    await (await stage.until(next.promise)).release();
    expect(await stage.records()).toHaveLength(4);
  });

  test("does not wait for ever for one that hangs: after a while it evicts another", async () => {
    const stage = newStage({ limits: { max: 2 } });
    const instance = await stage.open();
    const [stuck] = await parked(stage, instance, "a", "b");
    const ref = stage.objects().find(({ labels }) => labels.sandboxId === stuck)?.ref;
    instance.backend.on("destroy", (proceed, which) =>
      which === ref ? new Promise<void>(() => undefined) : proceed(),
    );
    await using lease = await stage.until(instance.fleet.acquire({ thread: "new" }), 20_000);
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
  });
});

describe("the soft limit", () => {
  const limits = { mode: "soft", max: 2 } as const;

  test("evicts the longest parked", async () => {
    const stage = newStage({ limits });
    const instance = await stage.open();
    await parked(stage, instance, "older", "newer");
    await using _lease = await stage.until(instance.fleet.acquire({ thread: "new" }));
    await stage.settle();
    expect((await stage.records()).map(({ thread }) => thread).sort()).toEqual(["new", "newer"]);
    expect(instance.typesOf("capacity-exceeded")).toEqual([]);
  });

  test("goes over when there is nothing to evict, and says so", async () => {
    const stage = newStage({ limits });
    const { fleet, eventsOf } = await stage.open();
    const leases = [await fleet.acquire({ thread: "a" }), await fleet.acquire({ thread: "b" })];
    expect(eventsOf("capacity-exceeded")).toEqual([]);
    const before = stage.time.now;
    leases.push(await stage.until(fleet.acquire({ thread: "c" })));
    expect(stage.time.now).toBe(before);
    expect(eventsOf("capacity-exceeded")).toMatchObject([{ max: 2, count: 3 }]);
    for (const lease of leases) expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
    expect(stage.objects()).toHaveLength(3);
  });

  test("does not wait for what it evicts", async () => {
    const stage = newStage({ limits });
    const instance = await stage.open();
    await parked(stage, instance, "a", "b");
    const gate = instance.backend.hang("destroy");
    const before = stage.time.now;
    await using _lease = await stage.until(instance.fleet.acquire({ thread: "c" }));
    expect(stage.time.now).toBe(before);
    gate.open();
  });
});
