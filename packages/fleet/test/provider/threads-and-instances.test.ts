/**
 * Warm and anonymous sandboxes, the maximum lifetime, and several instances over one store. Every store is tested for
 * the agreement of several instances.
 */

import { describe, expect, test } from "vitest";
import { newStage, newStageOn, STORE_KINDS } from "../support/stage.ts";
import { watched } from "../support/virtual-time.ts";

describe("warm", () => {
  test("takes no lease, and the next acquire is served from what it made", async () => {
    const stage = newStage();
    const { fleet, backend, eventsOf, typesOf } = await stage.open();
    await stage.until(fleet.warm({ thread: "t1" }));
    await stage.settle();
    expect(typesOf("lease-acquired")).toEqual([]);
    const record = await stage.recordOf("t1");
    expect(record).toEqual(expect.objectContaining({ state: "ready", holders: {}, leases: {} }));
    await using lease = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(lease.sandbox.id).toBe(record?.sandboxId);
    expect(eventsOf("lease-acquired").map(({ path }) => path)).toEqual(["parked"]);
    expect(backend.callsOf("create")).toHaveLength(1);
  });

  test("of a leased thread changes nothing", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1" });
    await stage.until(fleet.warm({ thread: "t1" }));
    expect(backend.callsOf("create")).toHaveLength(1);
    expect(fleet.get(lease.sandbox.id)).toBeDefined();
  });
});

describe("an acquire without a thread", () => {
  test("gets a sandbox of its own each time, which ends with its last lease and takes its workspace along", async () => {
    const stage = newStage();
    const { fleet, eventsOf } = await stage.open();
    const a = await fleet.acquire();
    const b = await fleet.acquire({});
    expect(a.sandbox.id).not.toBe(b.sandbox.id);
    await a.sandbox.files.write("/mnt/user-data/workspace/x", "1");
    await stage.until(a.release());
    await stage.settle();
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).toEqual([b.sandbox.id]);
    expect(stage.engine.leftovers()).toMatchObject({ homes: 1, markers: 1 });
    await stage.until(b.release());
    await stage.settle();
    expect(await stage.records()).toEqual([]);
    expect(stage.engine.leftovers()).toMatchObject({ homes: 0, slots: 0, markers: 0 });
    expect(eventsOf("sandbox-stopped").map(({ reason }) => reason)).toEqual(["released", "released"]);
  });

  test("that was left by a dead instance is ended by the next", async () => {
    const stage = newStage();
    const a = await stage.open();
    await a.fleet.acquire();
    a.crash({ seen: true });
    await stage.open();
    await stage.advance(60_000);
    expect(await stage.records()).toEqual([]);
    expect(stage.objects()).toEqual([]);
    expect(stage.engine.leftovers()).toMatchObject({ homes: 0, slots: 0, markers: 0 });
  });
});

describe("the maximum lifetime", () => {
  const config = { maxLifetimeMs: 60_000, idleTimeoutMs: 0 };

  test("refuses new leases and never ends a held one", async () => {
    const stage = newStage(config);
    const [a, b] = [await stage.open(), await stage.open()];
    const lease = await a.fleet.acquire({ thread: "t1" });
    await stage.advance(59_000);
    await (await a.fleet.acquire({ thread: "t1" })).release();
    await stage.advance(1_001);
    for (const { fleet } of [a, b]) {
      const error = await stage.refusal("sandbox_expired", fleet.acquire({ thread: "t1" }));
      expect(error.details).toMatchObject({ sandboxId: lease.sandbox.id, maxLifetimeMs: 60_000 });
    }
    await stage.advance(600_000);
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
    expect(a.typesOf("lease-lost", "sandbox-stopping")).toEqual([]);
    await stage.until(lease.release());
    await stage.settle();
    expect(a.eventsOf("sandbox-stopped").map(({ reason }) => reason)).toEqual(["expired"]);
    await using next = await stage.until(b.fleet.acquire({ thread: "t1" }));
    expect(next.generation).toBeGreaterThan(lease.generation);
    expect(next.recovery.kind).toBe("restored");
  });

  test("ends a parked one, and an acquire at that moment gets the next", async () => {
    const stage = newStage(config);
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.release();
    await stage.advance(59_998);
    const parked = await fleet.list();
    expect(parked.map(({ state }) => state)).toEqual(["parked"]);
    await stage.advance(3);
    await using next = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(next.generation).toBeGreaterThan(lease.generation);
  });
});

describe.each(STORE_KINDS)("two instances over one %s store", (kind) => {
  test("share one thread's sandbox, and it is parked when the last of them lets go", async () => {
    const stage = newStageOn(kind);
    const [a, b] = [await stage.open(), await stage.open()];
    const [here, there] = await stage.until(
      Promise.all([a.fleet.acquire({ thread: "t1" }), b.fleet.acquire({ thread: "t1" })]),
    );
    expect(here.sandbox.id).toBe(there.sandbox.id);
    expect(here.generation).toBe(there.generation);
    expect(stage.objects()).toHaveLength(1);
    await here.sandbox.files.write("/mnt/user-data/workspace/x", "from a");
    await stage.until(here.release());
    expect(Object.keys((await stage.recordOf("t1"))?.holders ?? {})).toEqual([b.fleet.instanceId]);
    expect(await there.sandbox.files.readText("/mnt/user-data/workspace/x")).toBe("from a");
    await stage.until(there.release());
    expect(await stage.recordOf("t1")).toEqual(expect.objectContaining({ state: "ready", holders: {} }));
  });

  test("make one sandbox, however many callers ask at both", async () => {
    const stage = newStageOn(kind);
    const instances = [await stage.open(), await stage.open()];
    const calls = Array.from({ length: 40 }, (_, index) => instances[index % 2]!.fleet.acquire({ thread: "t1" }));
    const leases = await stage.until(Promise.all(calls));
    expect(new Set(leases.map(({ generation }) => generation)).size).toBe(1);
    expect(instances[0]!.backend.callsOf("create").length + instances[1]!.backend.callsOf("create").length).toBe(1);
    await stage.until(Promise.all(leases.map((lease) => lease.release())));
    expect(await stage.recordOf("t1")).toEqual(expect.objectContaining({ holders: {} }));
  });

  test("never exceed the hard limit together, in any order", async () => {
    const stage = newStageOn(kind, { limits: { max: 3 } });
    const instances = [await stage.open(), await stage.open()];
    let most = 0;
    for (const { fleet } of instances) {
      fleet.events.on(() => {
        most = Math.max(most, stage.objects().length);
      });
    }
    const calls = Array.from({ length: 12 }, async (_, index) => {
      const lease = await instances[index % 2]!.fleet.acquire({ thread: `t${index}` });
      most = Math.max(most, stage.objects().length);
      await lease.sandbox.exec("sleep 1");
      await lease.release();
    });
    await stage.until(Promise.all(calls));
    expect(most).toBe(3);
    expect(stage.objects().length).toBeLessThanOrEqual(3);
  });

  test("one that closes hands its sandbox to the other as it was", async () => {
    const stage = newStageOn(kind);
    const a = await stage.open();
    const lease = await stage.until(a.fleet.acquire({ thread: "t1" }));
    await lease.sandbox.exec("echo x > /tmp/scratch");
    await stage.until(a.fleet.close());
    const b = await stage.open();
    const next = await stage.until(b.fleet.acquire({ thread: "t1" }));
    expect(next.recovery.kind).toBe("same");
    expect(next.sandbox.id).toBe(lease.sandbox.id);
    expect(await next.sandbox.files.readText("/tmp/scratch")).toBe("x\n");
    await stage.until(next.release());
  });
});

describe("an acquire that finds a create of a peer", () => {
  test("waits for it and shares it", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const gate = a.backend.hang("create");
    const first = watched(a.fleet.acquire({ thread: "t1" }));
    await stage.settle();
    const second = watched(b.fleet.acquire({ thread: "t1" }));
    await stage.advance(2_000);
    expect(second.state).toBe("pending");
    gate.open();
    const [x, y] = await stage.until(Promise.all([first.promise, second.promise]));
    expect(x.sandbox.id).toBe(y.sandbox.id);
    expect(b.backend.callsOf("create")).toHaveLength(0);
  });

  test("makes its own when that create fails", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    let fail: (error: Error) => void = () => undefined;
    a.backend.on("create", () => new Promise((_, reject) => (fail = reject)));
    const first = watched(a.fleet.acquire({ thread: "t1" }));
    await stage.settle();
    const second = b.fleet.acquire({ thread: "t1" });
    await stage.advance(1_000);
    fail(new Error("out of memory"));
    await using lease = await stage.until(second);
    await stage.refusal("create_failed", first.promise);
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
    expect(stage.objects()).toHaveLength(1);
  });
});
