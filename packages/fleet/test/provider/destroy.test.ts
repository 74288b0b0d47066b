/** Destroying on request, as other callers see it. */

import { describe, expect, test } from "vitest";
import type { Gate } from "../support/interception.ts";
import { newStage } from "../support/stage.ts";
import { watched } from "../support/virtual-time.ts";

const FILE = "/mnt/user-data/workspace/file";

describe("destroy", () => {
  test("of a parked sandbox leaves its workspace and nothing else", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.files.write(FILE, "kept");
    await lease.release();
    expect(await stage.until(fleet.destroy({ thread: "t1" }))).toBe("stopped");
    expect(stage.objects()).toEqual([]);
    expect(await stage.records()).toEqual([]);
    expect(stage.engine.leftovers()).toMatchObject({ homes: 1, slots: 0, markers: 0 });
    await using next = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(await next.sandbox.files.readText(FILE)).toBe("kept");
  });

  test("is not ended by a removal of the record that failed and lands while the next attempt clears up", async () => {
    const stage = newStage();
    const { fleet, store, backend } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    let late: (() => Promise<boolean>) | undefined;
    store.on("remove", (proceed) => {
      if (late !== undefined) return proceed();
      late = proceed;
      return Promise.reject(new Error("no answer"));
    });
    const destroying = watched(fleet.destroy({ thread: "t1" }));
    await stage.time.untilTrue("the removal has failed", () => late !== undefined);
    const gate = backend.hang("destroy");
    await stage.time.untilTrue("it is tried again", () => gate.arrived > 0);
    expect(await late?.()).toBe(false);
    gate.open();
    await stage.until(destroying.promise);
    await stage.advance(10_000);
    expect(await stage.records()).toEqual([]);
    expect(stage.objects()).toEqual([]);
  });

  test("of a thread that has none is absent", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    expect(await stage.until(fleet.destroy({ thread: "t1" }))).toBe("absent");
  });

  test("is refused with sandbox_in_use and its holders while it is held", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    await using lease = await a.fleet.acquire({ thread: "t1" });
    const remote = await b.fleet.acquire({ thread: "t1", ttlMs: 60_000 });
    for (const { fleet } of [a, b]) {
      const error = await stage.refusal("sandbox_in_use", fleet.destroy({ thread: "t1" }));
      expect(error.details.sandboxId).toBe(lease.sandbox.id);
      expect([...error.details.holders].sort()).toEqual([a.fleet.instanceId, b.fleet.instanceId, remote.id].sort());
    }
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
    await remote.release();
  });

  test("is not refused for a holder whose process is gone", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    await a.fleet.acquire({ thread: "t1" });
    a.crash({ seen: true });
    expect(await stage.until(b.fleet.destroy({ thread: "t1" }), 1_000)).toBe("stopped");
    expect(b.eventsOf("instance-buried")).toMatchObject([{ peer: a.fleet.instanceId }]);
    expect(stage.objects()).toEqual([]);
  });

  test("by force notifies holders at every instance that it was destroyed, and none is restarted", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const here = await a.fleet.acquire({ thread: "t1" });
    const there = await b.fleet.acquire({ thread: "t1" });
    const reasons: string[] = [];
    here.onLost(({ reason }) => reasons.push(`here ${reason}`));
    there.onLost(({ reason }) => reasons.push(`there ${reason}`));
    expect(await stage.until(a.fleet.destroy({ thread: "t1" }, { force: true }))).toBe("stopped");
    await stage.settle();
    expect(reasons.sort()).toEqual(["here destroyed", "there destroyed"]);
    expect(b.eventsOf("lease-lost")).toMatchObject([{ reason: "destroyed", leaseId: there.id }]);
    for (const lease of [here, there]) {
      const error = await stage.refusal("sandbox_lost", lease.sandbox.exec("true"));
      expect(error.details.reason).toBe("destroyed");
    }
    await here.release();
    await there.release();
    await stage.advance(60_000);
    expect(await stage.records()).toEqual([]);
    expect(stage.objects()).toEqual([]);
  });

  test("by force reaches a holder that missed the engine's event by its next beat", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const lease = await b.fleet.acquire({ thread: "t1" });
    const reasons: string[] = [];
    lease.onLost(({ reason }) => reasons.push(reason));
    const resume = stage.engine.suspendEvents();
    b.attachments.disturbClose = null;
    expect(await stage.until(a.fleet.destroy({ thread: "t1" }, { force: true }))).toBe("stopped");
    await stage.advance(8_000);
    expect(reasons).toEqual(["destroyed"]);
    resume();
    await lease.release();
  });

  test("answers `stopping` in bounded time when the engine hangs, and the stop is confirmed later", async () => {
    const stage = newStage({ stopTimeoutMs: 2_000 });
    const { fleet, backend, typesOf } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    const gate = backend.hang("destroy");
    const before = stage.time.now;
    expect(await stage.until(fleet.destroy({ thread: "t1" }, { timeoutMs: 300 }))).toBe("stopping");
    expect(stage.time.now - before).toBe(300);
    await stage.advance(20_000);
    expect(await stage.recordOf("t1")).toMatchObject({ state: "stopping", reason: "destroyed" });
    expect(typesOf("sandbox-stopped")).toEqual([]);
    expect(typesOf("sandbox-stop-failed").length).toBeGreaterThan(1);
    gate.open();
    await stage.advance(10_000);
    expect(await stage.records()).toEqual([]);
    expect(typesOf("sandbox-stopped")).toEqual(["sandbox-stopped"]);
  });

  test("answers `stopped` although the thread was acquired anew meanwhile", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    await (await a.fleet.acquire({ thread: "t1" })).release();
    const gate = a.backend.hang("destroy");
    const destroying = watched(a.fleet.destroy({ thread: "t1" }));
    await stage.settle();
    const acquiring = watched(b.fleet.acquire({ thread: "t1" }));
    await stage.settle();
    // A looks again only when B has its new sandbox, as a slow process would.
    a.store.on("find", async (proceed) => {
      await acquiring.promise;
      return proceed();
    });
    gate.open();
    await using lease = await stage.until(acquiring.promise);
    expect(await stage.until(destroying.promise)).toBe("stopped");
    expect((await lease.sandbox.exec("echo new")).stdout).toBe("new\n");
  });

  test("by force ends only what was there when it was asked, not what came after", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    await (await a.fleet.acquire({ thread: "t1" })).release();
    const gate = a.backend.hang("destroy");
    const destroying = watched(a.fleet.destroy({ thread: "t1" }, { force: true }));
    await stage.settle();
    const acquiring = watched(b.fleet.acquire({ thread: "t1" }));
    await stage.settle();
    a.store.on("find", async (proceed) => {
      await acquiring.promise;
      return proceed();
    });
    gate.open();
    await using lease = await stage.until(acquiring.promise);
    const { generation } = lease;
    await stage.until(destroying.promise);
    expect((await stage.until(lease.sandbox.exec("echo new"))).stdout).toBe("new\n");
    expect(lease.generation).toBe(generation);
  });

  test("can be cancelled by its caller; the stop goes on", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    const gate = backend.hang("destroy");
    const controller = new AbortController();
    const { promise } = watched(fleet.destroy({ thread: "t1" }, { signal: controller.signal }));
    await stage.settle();
    const reason = new Error("not waiting");
    controller.abort(reason);
    expect(await stage.rejection(promise)).toBe(reason);
    gate.open();
    await stage.advance(1_000);
    expect(await stage.records()).toEqual([]);
  });

  test("waits for a create that is under way, and then ends it unless it is held", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    const gate = backend.hang("create");
    const warming = fleet.warm({ thread: "t1" });
    await stage.settle();
    const destroying = fleet.destroy({ thread: "t1" });
    await stage.settle();
    gate.open();
    await stage.until(warming);
    expect(await stage.until(destroying)).toBe("stopped");
    expect(stage.objects()).toEqual([]);
  });

  test("by force, of what a peer is still making, is noted: it ends when its maker has made it", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    await (await a.fleet.acquire({ thread: "t1" })).release();
    await stage.until(a.fleet.destroy({ thread: "t1" }));
    const gate = a.backend.hang("create");
    const acquiring = watched(a.fleet.acquire({ thread: "t1", timeoutMs: 600_000 }));
    await stage.settle();
    const [first] = await stage.records();
    const destroying = b.fleet.destroy({ thread: "t1" }, { force: true, purge: true, timeoutMs: 300 });
    expect(await stage.until(destroying)).toBe("stopping");
    expect(acquiring.state).toBe("pending");
    gate.open();
    await using lease = await stage.until(acquiring.promise);
    expect(lease.sandbox.id).not.toBe(first?.sandboxId);
    expect(lease.recovery.kind).toBe("empty");
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).toEqual([lease.sandbox.id]);
    expect(a.eventsOf("sandbox-stopped")).toMatchObject([{}, { sandboxId: first?.sandboxId, reason: "destroyed" }]);
  });

  test("by force, of what a peer was making when it died, still takes the workspace along", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    await (await a.fleet.acquire({ thread: "t1" })).release();
    await stage.until(a.fleet.destroy({ thread: "t1" }));
    a.backend.hang("create");
    void a.fleet.acquire({ thread: "t1" }).catch(() => undefined);
    await stage.settle();
    const destroying = b.fleet.destroy({ thread: "t1" }, { force: true, purge: true, timeoutMs: 300 });
    expect(await stage.until(destroying)).toBe("stopping");
    a.crash();
    await stage.advance(60_000);
    expect(await stage.records()).toEqual([]);
    expect(stage.engine.leftovers()).toMatchObject({ homes: 0, slots: 0, markers: 0 });
  });

  test("without force, of what a peer is still making, is refused at its deadline and changes nothing", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const gate = a.backend.hang("create");
    const acquiring = watched(a.fleet.acquire({ thread: "t1", timeoutMs: 600_000 }));
    await stage.settle();
    const error = await stage.refusal("sandbox_in_use", b.fleet.destroy({ thread: "t1" }, { timeoutMs: 300 }));
    expect(error.details.holders).toEqual([a.fleet.instanceId]);
    expect(error.retryable).toBe(true);
    gate.open();
    await using lease = await stage.until(acquiring.promise);
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
  });

  test("that loses its race each time is refused, not promised", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    await (await a.fleet.acquire({ thread: "t1" })).release();
    a.store.on("stop", async (proceed) => {
      await (await b.fleet.acquire({ thread: "t1" })).release();
      return proceed();
    });
    await stage.refusal("sandbox_in_use", a.fleet.destroy({ thread: "t1" }, { purge: true, timeoutMs: 2_000 }));
    expect(await stage.recordOf("t1")).toMatchObject({ state: "ready", purge: false });
  });

  test("that the store does not answer in time is refused, not promised", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    const gate = store.hang("find");
    await stage.refusal("store_unavailable", fleet.destroy({ thread: "t1" }, { force: true, timeoutMs: 300 }));
    gate.open();
    await stage.advance(1_000);
    expect(await stage.recordOf("t1")).toMatchObject({ state: "ready" });
  });

  test("of a destroy that fails in the engine is tried again until it is confirmed", async () => {
    const stage = newStage();
    const { fleet, backend, eventsOf } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    const restore = backend.fail("destroy", new Error("device busy"));
    expect(await stage.until(fleet.destroy({ thread: "t1" }, { timeoutMs: 1_000 }))).toBe("stopping");
    await stage.advance(15_000);
    const attempts = eventsOf("sandbox-stop-failed").map(({ attempt }) => attempt);
    expect(attempts.length).toBeGreaterThan(2);
    expect(attempts).toEqual(attempts.map((_, index) => index + 1));
    restore();
    await stage.advance(6_000);
    expect(await stage.records()).toEqual([]);
    expect(stage.objects()).toEqual([]);
  });
});

describe("destroying a blank", () => {
  test("ends it, and the pool makes another", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const { fleet } = await stage.open();
    await stage.settle();
    const [blank] = await fleet.list();
    if (blank === undefined) throw new Error("there is no blank");
    expect(await stage.until(fleet.destroyBlank(blank.sandboxId))).toBe("stopped");
    expect(await stage.until(fleet.destroyBlank(blank.sandboxId))).toBe("absent");
    await stage.advance(6_000);
    expect(await fleet.list()).toMatchObject([{ state: "blank" }]);
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).not.toContain(blank.sandboxId);
  });

  test("that is still being made is noted, and ends when it is made", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const gates: Gate[] = [];
    const { fleet } = await stage.open({}, ({ backend }) => gates.push(backend.hang("create")));
    await stage.settle();
    const [blank] = await fleet.list();
    if (blank === undefined) throw new Error("no blank is being made");
    expect(await stage.until(fleet.destroyBlank(blank.sandboxId, { timeoutMs: 300 }))).toBe("stopping");
    for (const gate of gates) gate.open();
    await stage.advance(20_000);
    expect((await fleet.list()).map(({ sandboxId }) => sandboxId)).not.toContain(blank.sandboxId);
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).not.toContain(blank.sandboxId);
  });

  test("is refused once it has a thread", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const { fleet } = await stage.open();
    await stage.settle();
    await using lease = await stage.until(fleet.acquire({ thread: "t1" }));
    await stage.refusal("sandbox_in_use", fleet.destroyBlank(lease.sandbox.id));
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
  });
});
