/** Shutting down: drain, hand over, and no obstacle to closing a fleet. */

import { describe, expect, test } from "vitest";
import { newStage } from "../support/stage.ts";
import { watched } from "../support/virtual-time.ts";

describe("close", () => {
  test("is idempotent: every caller gets the one shutdown", async () => {
    const stage = newStage();
    const { fleet, store } = await stage.open();
    await fleet.acquire({ thread: "t1" });
    await stage.until(Promise.all([fleet.close(), fleet.close(), fleet[Symbol.asyncDispose]()]));
    await stage.until(fleet.close({ destroy: true }));
    expect(store.callsOf("leave")).toHaveLength(1);
    expect(store.callsOf("close")).toHaveLength(1);
    expect(stage.objects()).toHaveLength(1);
  });

  test("refuses everything new with fleet_closed", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const closing = fleet.close();
    const { operation } = (await stage.refusal("fleet_closed", fleet.acquire({ thread: "t1" }))).details;
    expect(operation).toBe("acquire");
    await stage.until(closing);
    await stage.refusal("fleet_closed", fleet.acquire({ thread: "t2" }));
    await stage.refusal("fleet_closed", fleet.acquire());
    await stage.refusal("fleet_closed", fleet.warm({ thread: "t1" }));
    await stage.refusal("fleet_closed", fleet.destroy({ thread: "t1" }));
    await stage.refusal("fleet_closed", fleet.list());
    await stage.refusal("fleet_closed", fleet.explain(lease.sandbox.id));
    await stage.refusal("fleet_closed", lease.sandbox.exec("true"));
    expect(fleet.get(lease.sandbox.id)).toBeUndefined();
  });

  test("waits for leases for the given time, and lets commands finish meanwhile", async () => {
    const stage = newStage();
    const { fleet, typesOf } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const running = lease.sandbox.exec("sleep 2; echo done");
    const closing = watched(fleet.close({ drainMs: 60_000 }));
    expect((await stage.until(running)).stdout).toBe("done\n");
    expect(closing.state).toBe("pending");
    await lease.release();
    const before = stage.time.now;
    await stage.until(closing.promise);
    expect(stage.time.now - before).toBeLessThan(1_000);
    expect(typesOf("lease-lost")).toEqual([]);
  });

  test("ends leases that are still out when the draining is over, and notifies their holders", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const reasons: string[] = [];
    lease.onLost(({ reason }) => reasons.push(reason));
    const before = stage.time.now;
    await stage.until(fleet.close({ drainMs: 5_000 }));
    expect(stage.time.now - before).toBeGreaterThanOrEqual(5_000);
    expect(stage.time.now - before).toBeLessThan(6_000);
    expect(reasons).toEqual(["session-lost"]);
    expect(await stage.recordOf("t1")).toEqual(expect.objectContaining({ state: "ready", holders: {} }));
    await stage.until(lease.release());
  });

  test("gives up acquires that are under way, and leaves nothing of them", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    backend.hang("create");
    const acquiring = watched(fleet.acquire({ thread: "t1" }));
    await stage.settle();
    await stage.until(fleet.close());
    await stage.refusal("fleet_closed", acquiring.promise);
    expect(await stage.records()).toEqual([]);
    expect(stage.objects()).toEqual([]);
  });

  test("gives up acquires that wait in the queue", async () => {
    const stage = newStage({ limits: { max: 1 } });
    const { fleet } = await stage.open();
    await fleet.acquire({ thread: "held" });
    const waiting = watched(fleet.acquire({ thread: "t1" }));
    await stage.settle();
    await stage.until(fleet.close());
    await stage.refusal("fleet_closed", waiting.promise);
  });

  test("waits for a reservation that is under way for the queue, and gives it back", async () => {
    const stage = newStage({ limits: { max: 1 } });
    const { fleet, store } = await stage.open();
    const held = await fleet.acquire({ thread: "held" });
    const waiting = watched(fleet.acquire({ thread: "t1" }));
    await stage.settle();
    let isReserved = false;
    let hear: () => void = () => undefined;
    store.on("reserve", async (proceed) => {
      const answer = await proceed();
      isReserved ||= answer.kind === "reserved";
      if (isReserved) await new Promise<void>((resolve) => (hear = resolve));
      return answer;
    });
    await held.release();
    await stage.time.untilTrue("room was reserved", () => isReserved);
    const closing = watched(fleet.close());
    await stage.refusal("fleet_closed", waiting.promise);
    await stage.settle();
    expect(closing.state).toBe("pending");
    hear();
    await stage.until(closing.promise);
    expect(await stage.records()).toEqual([]);
  });

  test("with destroy leaves nothing: no sandbox, no blank, no record", async () => {
    const stage = newStage({ pool: { default: 2 } });
    const { fleet } = await stage.open();
    await stage.settle();
    const held = await fleet.acquire({ thread: "held" });
    await (await fleet.acquire({ thread: "parked" })).release();
    await stage.settle();
    await stage.until(fleet.close({ destroy: true }));
    expect(await stage.records()).toEqual([]);
    expect(stage.objects()).toEqual([]);
    expect(stage.engine.leftovers()).toMatchObject({ homes: 2, slots: 0, markers: 0 });
    await held.release();
  });

  test("with destroy spares what another instance holds", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    await (await a.fleet.acquire({ thread: "mine" })).release();
    const shared = await a.fleet.acquire({ thread: "shared" });
    await using theirs = await b.fleet.acquire({ thread: "shared" });
    await stage.until(a.fleet.close({ destroy: true }));
    expect(stage.objects().map(({ labels }) => labels.sandboxId)).toEqual([shared.sandbox.id]);
    expect((await theirs.sandbox.exec("echo on")).stdout).toBe("on\n");
    expect(b.typesOf("lease-lost")).toEqual([]);
  });

  test("with destroy spares what a remote lease holds", async () => {
    const stage = newStage();
    const [a, b] = [await stage.open(), await stage.open()];
    const remote = await a.fleet.acquire({ thread: "t1", ttlMs: 600_000 });
    await stage.until(a.fleet.close({ destroy: true }));
    expect(stage.objects()).toHaveLength(1);
    expect(await b.fleet.remoteLeases.renew(remote.id)).toEqual({ expiresInMs: 600_000 });
  });

  test("ends in bounded time when engine and store hang", async () => {
    const stage = newStage({ stopTimeoutMs: 3_000 });
    const { fleet, backend, store } = await stage.open();
    await fleet.acquire({ thread: "t1" });
    await (await fleet.acquire({ thread: "t2" })).release();
    backend.hang("destroy", { deaf: true });
    store.hang("unhold", { deaf: true });
    store.hang("leave", { deaf: true });
    const before = stage.time.now;
    await stage.until(fleet.close({ destroy: true }));
    expect(stage.time.now - before).toBeLessThan(30_000);
  });

  test("ends the iterators of events, after they have seen what happened while closing", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const types: string[] = [];
    const reading = (async () => {
      for await (const event of fleet.events) types.push(event.type);
    })();
    await (await fleet.acquire({ thread: "t1" })).release();
    await stage.until(fleet.close({ destroy: true }));
    await stage.until(reading);
    expect(types).toContain("lease-acquired");
    expect(types.at(-1)).toBe("sandbox-stopped");
  });
});

describe("after a restart", () => {
  test("a sandbox whose holder died is taken over warm", async () => {
    const stage = newStage();
    const a = await stage.open();
    const lease = await a.fleet.acquire({ thread: "t1" });
    const { id } = lease.sandbox;
    a.crash();
    const b = await stage.open();
    await using next = await stage.until(b.fleet.acquire({ thread: "t1" }));
    expect(next.sandbox.id).toBe(id);
    expect(next.recovery.kind).toBe("same");
  });

  test("a held sandbox of a dead instance is parked when that one is buried, since it was last heard of", async () => {
    const stage = newStage({ idleTimeoutMs: 60_000 });
    const a = await stage.open();
    await a.fleet.acquire({ thread: "t1" });
    await stage.advance(30_000);
    a.crash();
    const crashedAt = a.world.wallMs();
    const b = await stage.open();
    await stage.time.untilTrue("buried", () => b.eventsOf("instance-buried").length > 0);
    const record = await stage.recordOf("t1");
    expect(record?.holders).toEqual({});
    expect(record?.parkedAt).toBeLessThanOrEqual(crashedAt);
    expect(record?.parkedAt).toBeGreaterThan(crashedAt - 5_000);
    await stage.advance(60_000);
    expect(stage.objects()).toEqual([]);
  });
});
