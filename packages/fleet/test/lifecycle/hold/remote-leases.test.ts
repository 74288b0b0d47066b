/**
 * Leases of remote callers: rows in the store, which any instance can renew or release, and which end by observation.
 */

import { describe, expect, test } from "vitest";
import { newStage, newStageOn, STORE_KINDS } from "../../support/stage.ts";
import { watched } from "../../support/virtual-time.ts";

const TTL_MS = 30_000;

describe.each(STORE_KINDS)("a remote lease in the %s store", (kind) => {
  test("is a row that counts as a holder, with an id nobody can guess", async () => {
    const stage = newStageOn(kind);
    const { fleet } = await stage.open();
    const lease = await stage.until(fleet.acquire({ thread: "t1", ttlMs: TTL_MS, purpose: "gateway" }));
    const record = await stage.recordOf("t1");
    expect(record?.leases[lease.id]).toMatchObject({ purpose: "gateway", ttlMs: TTL_MS, generation: lease.generation });
    expect(lease.id).toMatch(/^[0-9a-f]{32}$/);
    await stage.until(lease.release());
    expect(await stage.recordOf("t1")).toEqual(expect.objectContaining({ leases: {}, holders: {} }));
  });

  test("that is shorter than a round of housekeeping ends when it is due", async () => {
    const stage = newStageOn(kind);
    const { fleet } = await stage.open();
    await stage.until(fleet.acquire({ thread: "t1", ttlMs: 1_000 }));
    await stage.advance(500);
    expect(Object.keys((await stage.recordOf("t1"))?.leases ?? {})).toHaveLength(1);
    await stage.advance(1_500);
    expect(await stage.recordOf("t1")).toEqual(expect.objectContaining({ leases: {}, holders: {} }));
  });

  test("is renewed and released at another instance", async () => {
    const stage = newStageOn(kind);
    const [a, b] = [await stage.open(), await stage.open()];
    const lease = await stage.until(a.fleet.acquire({ thread: "t1", ttlMs: TTL_MS }));
    for (let renewal = 0; renewal < 6; renewal += 1) {
      await stage.advance(TTL_MS / 2);
      expect(await stage.until(b.fleet.remoteLeases.renew(lease.id))).toEqual({ expiresInMs: TTL_MS });
    }
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
    expect(await stage.until(b.fleet.remoteLeases.release(lease.id))).toBe(true);
    expect(await stage.until(b.fleet.remoteLeases.release(lease.id))).toBe(false);
    // The granting instance finds out, and releases its own hold.
    await stage.time.untilTrue("parked", async () => {
      const record = await stage.recordOf("t1");
      return record !== null && Object.keys(record.holders).length === 0;
    });
    await stage.refusal("lease_released", lease.sandbox.exec("true"));
  });

  test("outlives the instance that granted it, and can be renewed and released at the next one", async () => {
    const stage = newStageOn(kind, { idleTimeoutMs: 40_000 });
    const a = await stage.open();
    const lease = await stage.until(a.fleet.acquire({ thread: "t1", ttlMs: TTL_MS }));
    const { id } = lease.sandbox;
    a.crash();
    const b = await stage.open();
    for (let renewal = 0; renewal < 8; renewal += 1) {
      await stage.advance(TTL_MS / 2);
      await stage.until(b.fleet.remoteLeases.renew(lease.id));
    }
    expect(b.eventsOf("instance-buried")).toHaveLength(1);
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).toEqual([id]);
    expect(await stage.until(b.fleet.remoteLeases.release(lease.id))).toBe(true);
    const parked = await stage.recordOf("t1");
    expect(parked).toEqual(expect.objectContaining({ leases: {}, holders: {} }));
    expect(parked?.parkedAt).not.toBeNull();
    await stage.refusal("lease_not_found", b.fleet.remoteLeases.renew(lease.id));
    await stage.advance(60_000);
    expect(stage.objects()).toEqual([]);
  });
});

describe("a remote lease that is not renewed", () => {
  test("ends after its time, and not before", async () => {
    const stage = newStage();
    const { fleet, eventsOf } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1", ttlMs: TTL_MS });
    const reasons: string[] = [];
    lease.onLost(({ reason }) => reasons.push(reason));
    await stage.advance(TTL_MS - 1);
    expect((await lease.sandbox.exec("true")).exitCode).toBe(0);
    expect(reasons).toEqual([]);
    await stage.advance(15_000);
    expect(reasons).toEqual(["expired"]);
    expect(eventsOf("lease-lost")).toMatchObject([{ leaseId: lease.id, reason: "expired" }]);
    await stage.refusal("lease_released", lease.sandbox.exec("true"));
    await stage.refusal("lease_not_found", fleet.remoteLeases.renew(lease.id));
    expect(await stage.recordOf("t1")).toEqual(expect.objectContaining({ state: "ready", leases: {}, holders: {} }));
    await lease.release();
  });

  test("ends at another instance after the granting one died", async () => {
    const stage = newStage();
    const a = await stage.open();
    await a.fleet.acquire({ thread: "t1", ttlMs: TTL_MS });
    a.crash({ seen: true });
    await stage.open();
    await stage.advance(TTL_MS - 1);
    expect(Object.keys((await stage.recordOf("t1"))?.leases ?? {})).toHaveLength(1);
    await stage.advance(15_000);
    expect(await stage.recordOf("t1")).toEqual(expect.objectContaining({ leases: {}, holders: {} }));
  });

  test("does not end while an observer was blind: its time counts anew after an outage of the store", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const lease = await a.fleet.acquire({ thread: "t1", ttlMs: TTL_MS });
    await stage.advance(TTL_MS - 5_000);
    const restore = [a, b].map(({ store }) => store.failAll(() => new Error("down")));
    await stage.advance(20_000);
    for (const undo of restore) undo();
    await stage.advance(10_000);
    expect((await stage.recordOf("t1"))?.leases).toHaveProperty(lease.id);
    await stage.advance(TTL_MS + 25_000);
    expect((await stage.recordOf("t1"))?.leases).toEqual({});
  });

  test("does not end another lease of the same sandbox", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    await using local = await fleet.acquire({ thread: "t1" });
    await fleet.acquire({ thread: "t1", ttlMs: TTL_MS });
    const renewed = await fleet.acquire({ thread: "t1", ttlMs: TTL_MS });
    for (let round = 0; round < 5; round += 1) {
      await stage.advance(TTL_MS / 2);
      await fleet.remoteLeases.renew(renewed.id);
    }
    expect(Object.keys((await stage.recordOf("t1"))?.leases ?? {})).toEqual([renewed.id]);
    expect((await local.sandbox.exec("true")).exitCode).toBe(0);
    expect((await renewed.sandbox.exec("true")).exitCode).toBe(0);
  });
});

describe("a remote lease whose sandbox crashed", () => {
  test("gets its row in the next generation with its next use", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1", ttlMs: TTL_MS });
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    expect((await stage.until(lease.sandbox.exec("true"))).exitCode).toBe(0);
    expect((await stage.recordOf("t1"))?.leases[lease.id]).toMatchObject({ generation: lease.generation });
    await lease.release();
    expect(await stage.recordOf("t1")).toEqual(expect.objectContaining({ leases: {}, holders: {} }));
  });

  test("is not taken for expired while that row is being written", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1", ttlMs: TTL_MS });
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    const gate = store.hang("grantLease");
    const use = lease.sandbox.exec("echo on");
    use.catch(() => undefined);
    await stage.settle();
    expect(gate.arrived).toBe(1);
    // The reaper runs meanwhile.
    await stage.advance(6_000);
    gate.open();
    expect((await stage.until(use)).stdout).toBe("on\n");
    expect((await stage.until(lease.sandbox.exec("echo on"))).stdout).toBe("on\n");
    await lease.release();
  });

  test("has a deadline for that row, too", async () => {
    const stage = newStage({ acquireTimeoutMs: 5_000 });
    const { fleet, store } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1", ttlMs: TTL_MS });
    stage.killSandbox(lease.sandbox.id);
    await stage.settle();
    const gate = store.hang("grantLease");
    const use = watched(lease.sandbox.exec("true"));
    await stage.advance(11_000);
    expect(use.state).toBe("rejected");
    gate.open();
    await stage.until(lease.release());
  });

  test("is not expired by its instance as long as its row is renewed at another", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const lease = await a.fleet.acquire({ thread: "t1", ttlMs: TTL_MS });
    const reasons: string[] = [];
    lease.onLost(({ reason }) => reasons.push(reason));
    await using _other = await b.fleet.acquire({ thread: "t1" });
    // Destroyed at the one, restored with its row by the other, because the store was lost in between.
    const stopping = a.backend.hang("destroy");
    const destroying = watched(a.fleet.destroy({ thread: "t1" }, { force: true }));
    await stage.settle();
    stage.tables.empty();
    for (let round = 0; round < 6; round += 1) {
      await stage.advance(TTL_MS / 2);
      await stage.until(b.fleet.remoteLeases.renew(lease.id));
    }
    expect(reasons).toEqual(["destroyed"]);
    await stage.advance(4 * TTL_MS);
    expect(reasons).toEqual(["destroyed", "expired"]);
    stopping.open();
    await stage.until(destroying.promise.catch(() => undefined));
  });

  test("and which is released while the next one is granted to it leaves no row", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    const lease = await stage.until(fleet.acquire({ thread: "t1", ttlMs: 100 * TTL_MS }));
    stage.killSandbox(lease.sandbox.id);
    await stage.advance(100);
    const granting = store.hang("grantLease", { deaf: true });
    const using = lease.sandbox.exec("true").catch(() => undefined);
    await stage.advance(500);
    expect(granting.arrived).toBe(1);
    const releasing = lease.release();
    await stage.advance(100);
    granting.open();
    await stage.until(Promise.all([releasing, using]));
    expect(await stage.recordOf("t1")).toMatchObject({ state: "ready", holders: {}, leases: {} });
  });

  test("and which nobody uses or renews again is forgotten after its time", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1", ttlMs: TTL_MS });
    stage.killSandbox(lease.sandbox.id);
    await stage.advance(10 * TTL_MS);
    await stage.refusal("lease_not_found", fleet.remoteLeases.renew(lease.id));
    // Nothing is left to drain.
    const before = stage.time.now;
    await stage.until(fleet.close({ drainMs: 60_000 }));
    expect(stage.time.now - before).toBeLessThan(60_000);
  });
});
