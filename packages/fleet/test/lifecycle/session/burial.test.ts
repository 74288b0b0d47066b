/**
 * When a session counts as dead: only after a full lifetime of silence observed without a gap, or at once when the
 * process is known to be gone. A paused instance, or one whose clock jumped, may not judge.
 */

import { describe, expect, test } from "vitest";
import { newStage, newStageOn, STORE_KINDS } from "../../support/stage.ts";

const LIFETIME_MS = 15_000;

describe.each(STORE_KINDS)("over the %s store, a peer", (kind) => {
  test("that fell silent is buried after a full lifetime, and not before", async () => {
    const stage = newStageOn(kind, { sessionLifetimeMs: LIFETIME_MS });
    const [a, b] = [await stage.open(), await stage.open()];
    await stage.advance(5 * LIFETIME_MS);
    expect(b.typesOf("instance-buried")).toEqual([]);
    let lastBeatAt = 0;
    a.store.on("beat", (proceed) => {
      lastBeatAt = stage.time.now;
      return proceed();
    });
    await stage.advance(LIFETIME_MS);
    a.crash();
    await stage.advance(lastBeatAt + LIFETIME_MS - 1 - stage.time.now);
    expect(b.typesOf("instance-buried")).toEqual([]);
    await stage.advance(LIFETIME_MS);
    expect(b.eventsOf("instance-buried").map(({ peer }) => peer)).toEqual([a.fleet.instanceId]);
  });

  test("that is silent while its process is known to be alive is given several lifetimes", async () => {
    const stage = newStageOn(kind, { sessionLifetimeMs: LIFETIME_MS, idleTimeoutMs: 20_000 });
    const [a, b] = [await stage.open(), await stage.open()];
    const lease = await a.fleet.acquire({ thread: "t1" });
    stage.time.setLiveness(a.world.identity, "alive");
    a.world.stop();
    await stage.advance(3 * LIFETIME_MS);
    expect(b.typesOf("instance-buried")).toEqual([]);
    expect(stage.objects()).toHaveLength(1);
    await stage.advance(2 * LIFETIME_MS);
    expect(b.typesOf("instance-buried")).toEqual(["instance-buried"]);
    a.world.goOn();
    await lease.release();
  });

  test("whose process is gone is buried with the next look", async () => {
    const stage = newStageOn(kind, { sessionLifetimeMs: LIFETIME_MS });
    const [a, b] = [await stage.open(), await stage.open()];
    await stage.until(a.fleet.acquire({ thread: "t1" }));
    a.crash({ seen: true });
    await stage.advance(LIFETIME_MS / 2);
    expect(b.eventsOf("instance-buried").map(({ peer }) => peer)).toEqual([a.fleet.instanceId]);
    expect(await stage.recordOf("t1")).toEqual(expect.objectContaining({ state: "ready", holders: {} }));
  });
});

describe("a peer", () => {
  test("that is slow but beats within a lifetime is never buried", async () => {
    const stage = newStage({ sessionLifetimeMs: LIFETIME_MS });
    const [a, b] = [await stage.open(), await stage.open()];
    for (let round = 0; round < 10; round += 1) {
      a.world.stop();
      await stage.advance(LIFETIME_MS - 4_000);
      a.world.goOn();
      await stage.advance(100);
    }
    expect(b.typesOf("instance-buried")).toEqual([]);
  });

  test("is not buried by an observer whose own sight was broken: its lifetime counts anew", async () => {
    const stage = newStage({ sessionLifetimeMs: LIFETIME_MS });
    const [a, b] = [await stage.open(), await stage.open()];
    await stage.advance(20_000);
    a.crash();
    await stage.advance(LIFETIME_MS - 5_000);
    const restore = b.store.failAll(() => new Error("down"));
    await stage.advance(6_000);
    restore();
    const seenAgain = stage.time.now;
    await stage.time.untilTrue("buried", () => b.typesOf("instance-buried").length > 0);
    expect(stage.time.now - seenAgain).toBeGreaterThanOrEqual(LIFETIME_MS);
  });

  test("that was buried while it was paused registers again, keeps what nobody took, and destroys nothing", async () => {
    const stage = newStage({ sessionLifetimeMs: LIFETIME_MS, idleTimeoutMs: 0 });
    const [a, b] = [await stage.open(), await stage.open()];
    const lease = await a.fleet.acquire({ thread: "t1" });
    a.world.stop();
    await stage.time.untilTrue("buried", () => b.typesOf("instance-buried").length > 0);
    expect((await stage.recordOf("t1"))?.holders).toEqual({});
    a.world.goOn();
    await stage.advance(5_000);
    expect(Object.keys((await stage.recordOf("t1"))?.holders ?? {})).toEqual([a.fleet.instanceId]);
    expect((await stage.until(lease.sandbox.exec("echo on"))).stdout).toBe("on\n");
    expect(a.typesOf("lease-lost")).toEqual([]);
    await lease.release();
  });

  test("that was buried while it was paused, and whose sandbox was ended meanwhile, says that it is lost", async () => {
    const stage = newStage({ sessionLifetimeMs: LIFETIME_MS, idleTimeoutMs: 0 });
    const [a, b] = [await stage.open(), await stage.open()];
    const lease = await a.fleet.acquire({ thread: "t1" });
    const { generation } = lease;
    const resume = stage.engine.suspendEvents();
    a.world.stop();
    await stage.time.untilTrue("buried", () => b.typesOf("instance-buried").length > 0);
    expect(await stage.until(b.fleet.destroy({ thread: "t1" }))).toBe("stopped");
    await using fresh = await stage.until(b.fleet.acquire({ thread: "t1" }));
    a.world.goOn();
    resume();
    await stage.advance(5_000);
    expect(a.eventsOf("lease-lost")).toMatchObject([{ leaseId: lease.id, generation }]);
    expect((await fresh.sandbox.exec("echo on")).stdout).toBe("on\n");
    expect(fresh.generation).toBeGreaterThan(generation);
    await lease.release();
  });
});

describe("an instance that was paused", () => {
  test("validates what it holds before it uses memory again", async () => {
    const stage = newStage({ sessionLifetimeMs: LIFETIME_MS });
    const { fleet, store, world } = await stage.open();
    await using _lease = await fleet.acquire({ thread: "t1" });
    world.stop();
    await stage.advance(LIFETIME_MS);
    store.forgetCalls();
    const acquiring = fleet.acquire({ thread: "t1" });
    world.goOn();
    await (await stage.until(acquiring)).release();
    expect(store.callsOf("beat").length).toBeGreaterThan(0);
  });

  test("judges nobody for a lifetime", async () => {
    const stage = newStage({ sessionLifetimeMs: LIFETIME_MS });
    const [a, b] = [await stage.open(), await stage.open()];
    await stage.advance(20_000);
    b.world.stop();
    a.crash({ seen: true });
    await stage.advance(LIFETIME_MS);
    b.world.goOn();
    const resumed = stage.time.now;
    await stage.advance(LIFETIME_MS - 1_000);
    expect(b.typesOf("instance-doubted").length).toBeGreaterThan(0);
    expect(b.typesOf("instance-buried")).toEqual([]);
    await stage.time.untilTrue("buried", () => b.typesOf("instance-buried").length > 0);
    expect(stage.time.now - resumed).toBeGreaterThanOrEqual(LIFETIME_MS);
  });

  test("reaps nothing for a lifetime", async () => {
    const stage = newStage({ sessionLifetimeMs: LIFETIME_MS, idleTimeoutMs: 30_000 });
    const { fleet, world } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    world.stop();
    await stage.advance(120_000);
    world.goOn();
    await stage.advance(LIFETIME_MS - 1_000);
    expect(stage.objects()).toHaveLength(1);
    await stage.advance(10_000);
    expect(stage.objects()).toEqual([]);
  });
});

describe("a step of the wall clock", () => {
  test.each([
    ["forward", 3_600_000],
    ["back", -3_600_000],
  ])("%s makes an instance validate and judge nobody for a lifetime, and ends nothing", async (_, stepMs) => {
    const stage = newStage({ sessionLifetimeMs: LIFETIME_MS, idleTimeoutMs: 600_000 });
    const [a, b] = [await stage.open(), await stage.open()];
    await stage.advance(20_000);
    const lease = await b.fleet.acquire({ thread: "t1" });
    a.crash({ seen: true });
    b.world.stepWallClock(stepMs);
    b.store.forgetCalls();
    await (await stage.until(b.fleet.acquire({ thread: "t1" }))).release();
    expect(b.store.callsOf("beat").length).toBeGreaterThan(0);
    await stage.advance(LIFETIME_MS - 1_000);
    expect(b.typesOf("instance-doubted")).toEqual(["instance-doubted"]);
    expect(b.typesOf("instance-buried")).toEqual([]);
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
    await lease.release();
    await stage.advance(300_000);
    expect(stage.objects()).toHaveLength(1);
  });

  test("of less than a second is nothing", async () => {
    const stage = newStage({ sessionLifetimeMs: LIFETIME_MS });
    const { typesOf, world } = await stage.open();
    world.stepWallClock(900);
    await stage.advance(LIFETIME_MS);
    expect(typesOf("instance-doubted")).toEqual([]);
  });
});

describe("a closed instance", () => {
  test("leaves at once: nobody has to wait for its burial", async () => {
    const stage = newStage({ idleTimeoutMs: 60_000 });
    const [a, b] = [await stage.open(), await stage.open()];
    await a.fleet.acquire({ thread: "t1" });
    await stage.until(a.fleet.close());
    expect(await stage.recordOf("t1")).toEqual(expect.objectContaining({ state: "ready", holders: {} }));
    await stage.advance(60_000);
    expect(b.typesOf("instance-buried")).toEqual([]);
  });
});
