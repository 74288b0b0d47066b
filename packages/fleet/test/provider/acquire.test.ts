/** Acquire: which caller gets which sandbox, and the meaning of a lease. `deadlines.test.ts` tests its duration. */

import { SandlotError } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { newStage } from "../support/stage.ts";
import { watched } from "../support/virtual-time.ts";

describe("acquire", () => {
  test("a hundred callers of one thread share one create, and each has a lease of its own", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    const leases = await stage.until(Promise.all(Array.from({ length: 100 }, () => fleet.acquire({ thread: "t1" }))));
    expect(backend.callsOf("create")).toHaveLength(1);
    expect(new Set(leases.map(({ id }) => id)).size).toBe(100);
    for (const lease of leases.slice(1)) await stage.until(lease.release());
    expect((await stage.recordOf("t1"))?.parkedAt).toBeNull();
    await stage.until(leases[0]!.release());
    expect((await stage.recordOf("t1"))?.parkedAt).not.toBeNull();
  });

  test("a held thread is leased again without asking store or engine", async () => {
    const stage = newStage();
    const { fleet, store, backend, eventsOf } = await stage.open();
    const first = await fleet.acquire({ thread: "t1" });
    store.failAll(() => new Error("poisoned"));
    backend.failAll(() => new Error("poisoned"));
    const second = await fleet.acquire({ thread: "t1" });
    expect(second.sandbox.id).toBe(first.sandbox.id);
    expect(eventsOf("lease-acquired").map(({ path }) => path)).toEqual(["cold", "held"]);
  });

  test("get is synchronous and in memory only", async () => {
    const stage = newStage();
    const { fleet, store, backend } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    store.failAll(() => new Error("poisoned"));
    backend.failAll(() => new Error("poisoned"));
    store.forgetCalls();
    backend.forgetCalls();
    const sandbox = fleet.get(lease.sandbox.id);
    expect(sandbox?.id).toBe(lease.sandbox.id);
    expect(fleet.get("nobody-knows")).toBeUndefined();
    expect(store.callCount + backend.callCount).toBe(0);
    expect((await sandbox?.exec("echo hi"))?.stdout).toBe("hi\n");
    await lease.release();
    expect(fleet.get(lease.sandbox.id)).toBeUndefined();
  });

  test("two users' threads of the same name are two sandboxes", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    await using a = await fleet.acquire({ user: "alice", thread: "t1" });
    await using b = await fleet.acquire({ user: "bob", thread: "t1" });
    expect(a.sandbox.id).not.toBe(b.sandbox.id);
    await a.sandbox.files.write("/mnt/user-data/workspace/secret", "alice's");
    await stage.refusal("file_not_found", b.sandbox.files.readText("/mnt/user-data/workspace/secret"));
  });

  test("a create that fails rejects every caller that waited for it, and leaves nothing", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    const restore = backend.fail("create", new Error("no space left"));
    const errors = await Promise.all(
      Array.from({ length: 3 }, () => stage.refusal("create_failed", fleet.acquire({ thread: "t1" }))),
    );
    expect(errors.map(({ details }) => details.problem)).toEqual(Array(3).fill("no space left"));
    expect(await stage.records()).toEqual([]);
    restore();
    await using lease = await stage.until(fleet.acquire({ thread: "t1" }));
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
  });

  test("a create that fails after taking effect leaves nothing in the engine", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    backend.on("create", async (proceed) => {
      await proceed();
      throw new Error("connection reset");
    });
    await stage.refusal("create_failed", fleet.acquire({ thread: "t1" }));
    expect(stage.objects()).toEqual([]);
    expect(await stage.records()).toEqual([]);
    expect(stage.engine.leftovers()).toMatchObject({ markers: 0, slots: 0, homes: 1 });
    // No caller can request this one's workspace again.
    await stage.refusal("create_failed", fleet.acquire());
    expect(stage.engine.leftovers()).toMatchObject({ markers: 0, slots: 0, homes: 1 });
  });
});

describe("acquire and release at the same time", () => {
  test("an acquire that comes while the last lease is being given back gets the sandbox and keeps it", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    const first = await fleet.acquire({ thread: "t1" });
    const gate = store.hang("unhold");
    const releasing = watched(first.release());
    await stage.settle();
    const second = await stage.until(fleet.acquire({ thread: "t1" }));
    gate.open();
    await stage.until(releasing.promise, 0);
    // Before any heartbeat could have healed it.
    expect(Object.keys((await stage.recordOf("t1"))?.holders ?? {})).toEqual([fleet.instanceId]);
    await stage.advance(20_000);
    expect(Object.keys((await stage.recordOf("t1"))?.holders ?? {})).toEqual([fleet.instanceId]);
    expect(second.sandbox.id).toBe(first.sandbox.id);
    expect((await second.sandbox.exec("echo on")).stdout).toBe("on\n");
    await second.release();
    expect((await stage.recordOf("t1"))?.holders).toEqual({});
  });

  test("beats that pass while a hold is being asked for do not undo it", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    const gate = store.hang("take", { when: "after" });
    const acquiring = watched(fleet.acquire({ thread: "t1" }));
    store.forgetCalls();
    await stage.advance(20_000);
    expect(store.callsOf("beat").length).toBeGreaterThan(2);
    gate.open();
    await using lease = await stage.until(acquiring.promise);
    expect(Object.keys((await stage.recordOf("t1"))?.holders ?? {})).toEqual([fleet.instanceId]);
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
  });

  test("a sandbox that is destroyed by force at the same instance while it is being connected is not handed out", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    const gate = backend.hang("attach", { when: "after", deaf: true });
    const acquiring = watched(fleet.acquire({ thread: "t1" }));
    await stage.settle();
    const doomed = await stage.recordOf("t1");
    const stopping = backend.hang("destroy");
    const destroying = watched(fleet.destroy({ thread: "t1" }, { force: true }));
    await stage.settle();
    gate.open();
    await stage.settle();
    expect(acquiring.state).toBe("pending");
    stopping.open();
    expect(await stage.until(destroying.promise)).toBe("stopped");
    await using lease = await stage.until(acquiring.promise);
    expect(lease.generation).toBeGreaterThan(doomed?.generation ?? Number.POSITIVE_INFINITY);
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
  });

  test("a beat asks about what is still being connected: what was destroyed elsewhere is not handed out", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const gate = a.backend.hang("attach", { when: "after", deaf: true });
    const acquiring = watched(a.fleet.acquire({ thread: "t1" }));
    await stage.settle();
    const doomed = await stage.recordOf("t1");
    // Its end is not confirmed before the connection exists.
    const stopping = b.backend.hang("destroy");
    const destroying = watched(b.fleet.destroy({ thread: "t1" }, { force: true }));
    await stage.advance(5_000);
    gate.open();
    await stage.settle();
    expect(acquiring.state).toBe("pending");
    stopping.open();
    await stage.until(destroying.promise);
    await using lease = await stage.until(acquiring.promise);
    expect(lease.generation).toBeGreaterThan(doomed?.generation ?? Number.POSITIVE_INFINITY);
  });

  test("connecting may take longer than half a session: beats confirm the hold meanwhile", async () => {
    const stage = newStage();
    const { fleet, backend, attachments } = await stage.open();
    const gate = backend.hang("attach", { when: "after", deaf: true });
    const acquiring = watched(fleet.acquire({ thread: "t1" }));
    await stage.advance(20_000);
    gate.open();
    await using lease = await stage.until(acquiring.promise);
    expect(attachments.openedCount).toBe(1);
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
  });

  test("a thousand leases of one thread, taken and released in any order, end in one parked sandbox", async () => {
    const stage = newStage();
    const { fleet, backend, store } = await stage.open();
    const work = Array.from({ length: 1_000 }, async (_, index) => {
      const lease = await fleet.acquire({ thread: "t1" });
      for (let turn = 0; turn < index % 7; turn += 1) await Promise.resolve();
      await lease.release();
    });
    await stage.until(Promise.all(work));
    expect(backend.callsOf("create")).toHaveLength(1);
    expect(await stage.recordOf("t1")).toEqual(expect.objectContaining({ state: "ready", holders: {} }));
    expect(store.callsOf("unhold").length).toBeLessThan(10);
  });
});

describe("a lease", () => {
  test("released twice, or disposed twice, is released once", async () => {
    const stage = newStage();
    const { fleet, typesOf } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await Promise.all([lease.release(), lease.release()]);
    await lease[Symbol.asyncDispose]();
    await lease[Symbol.asyncDispose]();
    expect(typesOf("lease-released", "sandbox-parked")).toEqual(["lease-released", "sandbox-parked"]);
  });

  test("is released at the end of an `await using` block", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    {
      await using lease = await fleet.acquire({ thread: "t1" });
      expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
      expect(Object.keys((await stage.recordOf("t1"))?.holders ?? {})).toHaveLength(1);
    }
    expect((await stage.recordOf("t1"))?.holders).toEqual({});
  });

  test("answers every use after its release with lease_released, also through an object taken before", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    await using _other = await fleet.acquire({ thread: "t1" });
    const lease = await fleet.acquire({ thread: "t1" });
    const { sandbox } = lease;
    const { files } = sandbox;
    await lease.release();
    for (const use of [() => sandbox.exec("true"), () => files.list("/"), () => lease.sandbox.exec("true")]) {
      const error = await stage.refusal("lease_released", use());
      expect(error.details.leaseId).toBe(lease.id);
    }
  });

  test("can be released after its sandbox was lost", async () => {
    const stage = newStage({ autoRestart: false });
    const { fleet, typesOf } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    await stage.until(lease.release());
    expect(typesOf("lease-lost", "lease-released", "sandbox-parked")).toEqual(["lease-lost", "lease-released"]);
    expect(await stage.records()).toEqual([]);
  });

  test("can be released while the store does not answer", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const restore = store.failAll(
      () => new SandlotError("store_unavailable", { operation: "x", problem: "down", retryAfterMs: 1 }),
    );
    await stage.until(lease.release());
    restore();
    // The next heartbeat lists the holds, and so heals the lost release.
    await stage.advance(10_000);
    expect((await stage.recordOf("t1"))?.holders).toEqual({});
  });

  test("is released in time, however late the store answers", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const gate = store.hang("unhold");
    const releasing = watched(lease.release());
    await stage.advance(5_100);
    expect(releasing.state).toBe("fulfilled");
    gate.open();
    await stage.advance(1_000);
    expect((await stage.recordOf("t1"))?.holders).toEqual({});
  });

  test("knows what for and since when it was taken", async () => {
    const stage = newStage();
    const { fleet, world } = await stage.open();
    await using lease = await fleet.acquire({ thread: "t1", purpose: "agent" });
    expect(lease.purpose).toBe("agent");
    expect(lease.acquiredAt).toBe(world.wallMs());
  });
});

describe("blueprints", () => {
  const config = { blueprints: { big: { environment: { SIZE: "big" } }, small: { environment: { SIZE: "small" } } } };

  test("an acquire gets what it names, and `default` where it names none", async () => {
    const stage = newStage(config);
    const { fleet } = await stage.open();
    await using big = await fleet.acquire({ thread: "t1", blueprint: "big" });
    await using plain = await fleet.acquire({ thread: "t2" });
    expect((await big.sandbox.exec("echo $SIZE")).stdout).toBe("big\n");
    expect((await plain.sandbox.exec("echo [$SIZE]")).stdout).toBe("[]\n");
  });

  test("a thread that lives on another one is refused, held or parked, never replaced", async () => {
    const stage = newStage(config);
    const { fleet, backend } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1", blueprint: "big" });
    const held = await stage.refusal("blueprint_mismatch", fleet.acquire({ thread: "t1", blueprint: "small" }));
    expect(held.details).toEqual({ thread: "t1", wanted: "small", actual: "big" });
    await lease.release();
    await stage.refusal("blueprint_mismatch", fleet.acquire({ thread: "t1", blueprint: "small" }));
    expect(backend.callsOf("create")).toHaveLength(1);
    await using again = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(again.sandbox.id).toBe(lease.sandbox.id);
  });

  test("one caller's mismatch does not reject another without an expectation", async () => {
    const stage = newStage(config);
    const { fleet } = await stage.open();
    await (await fleet.acquire({ thread: "t1", blueprint: "big" })).release();
    const mismatched = stage.refusal("blueprint_mismatch", fleet.acquire({ thread: "t1", blueprint: "small" }));
    const plain = fleet.acquire({ thread: "t1" });
    await mismatched;
    await (await stage.until(plain)).release();
  });

  test("an unknown one is refused with the known ones, and nothing is made", async () => {
    const stage = newStage(config);
    const { fleet } = await stage.open();
    const error = await stage.refusal("blueprint_unknown", fleet.acquire({ thread: "t1", blueprint: "huge" }));
    expect([...error.details.known].sort()).toEqual(["big", "default", "small"]);
    await stage.refusal("blueprint_unknown", fleet.acquire({ thread: "t1", blueprint: "constructor" }));
    expect(await stage.records()).toEqual([]);
  });

  test("warming a thread on another one is refused, held or parked", async () => {
    const stage = newStage(config);
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1", blueprint: "big" });
    await stage.refusal("blueprint_mismatch", fleet.warm({ thread: "t1", blueprint: "small" }));
    await lease.release();
    await stage.refusal("blueprint_mismatch", fleet.warm({ thread: "t1", blueprint: "small" }));
  });
});
