/** Which work counts as activity inside a parked sandbox. Each row of the activity table is a test. */

import { describe, expect, test } from "vitest";
import type { Activity } from "../../../src/backend/backend.ts";
import { isBusy } from "../../../src/lifecycle/housekeeping/plans.ts";
import { newStage } from "../../support/stage.ts";

const NOW = 1_000_000;
const settings = { cpuShareMin: 0.05, previewQuietMs: 60_000 };
const quiet: Activity = { runningExecs: 0, openTerminals: 0, previewTrafficAt: null, cpuShare: 0 };
const busyWith = (activity: Partial<Activity>, given = settings) => isBusy({ ...quiet, ...activity }, given, NOW);

describe("the activity table", () => {
  test("nothing at all is idle", () => {
    expect(busyWith({})).toBe(false);
  });

  test("a running exec is work", () => {
    expect(busyWith({ runningExecs: 1 })).toBe(true);
  });

  test("an open terminal is work", () => {
    expect(busyWith({ openTerminals: 1 })).toBe(true);
  });

  test.each([
    [0, true],
    [59_999, true],
    [60_000, false],
    [60_001, false],
  ])("preview traffic %i ms ago, where 60000 are quiet: %s", (agoMs, busy) => {
    expect(busyWith({ previewTrafficAt: NOW - agoMs })).toBe(busy);
  });

  test("preview traffic does not count where previewQuietMs is 0", () => {
    expect(busyWith({ previewTrafficAt: NOW }, { ...settings, previewQuietMs: 0 })).toBe(false);
  });

  test.each([
    [0.0499, false],
    [0.05, true],
    [0.0501, true],
    [4, true],
  ])("a processor share of %d, where 0.05 is work: %s", (cpuShare, busy) => {
    expect(busyWith({ cpuShare })).toBe(busy);
  });
});

describe("through a whole fleet", () => {
  const IDLE_MS = 60_000;

  test("a command that runs in the background keeps a parked sandbox, and it ends when the command has", async () => {
    const stage = newStage({ idleTimeoutMs: IDLE_MS });
    const { fleet, eventsOf } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.exec("(sleep 300; echo done > /mnt/user-data/workspace/result) &");
    await lease.release();
    await stage.advance(299_000);
    expect(stage.objects()).toHaveLength(1);
    await stage.advance(20_000);
    expect(stage.objects()).toEqual([]);
    expect(eventsOf("sandbox-stopped").map(({ reason }) => reason)).toEqual(["idle"]);
    await using next = await stage.until(fleet.acquire({ thread: "t1" }));
    expect(await next.sandbox.files.readText("/mnt/user-data/workspace/result")).toBe("done\n");
  });

  test("a sandbox with nothing going on ends when it is idle long enough, and not before", async () => {
    const stage = newStage({ idleTimeoutMs: IDLE_MS });
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await stage.advance(5 * IDLE_MS);
    await lease.release();
    await stage.advance(IDLE_MS - 1);
    expect(stage.objects()).toHaveLength(1);
    await stage.advance(7_000);
    expect(stage.objects()).toEqual([]);
  });

  test("probes, activity queries, lists, explanations and reconciliations do not count as use", async () => {
    const stage = newStage({ idleTimeoutMs: IDLE_MS });
    const { fleet, backend } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    const { id } = lease.sandbox;
    await lease.release();
    const never = new AbortController().signal;
    const [{ ref } = { ref: "" as never }] = stage.objects();
    for (let look = 0; look < 59; look += 1) {
      await backend.proxy.probe(ref, never);
      expect(await backend.proxy.activity(ref, never)).toEqual(quiet);
      await backend.proxy.list({ consistent: true }, never);
      await fleet.list();
      await fleet.explain(id);
      await stage.advance(1_000);
    }
    expect(stage.objects()).toHaveLength(1);
    await stage.advance(8_000);
    expect(stage.objects()).toEqual([]);
  });

  test("not being able to ask is not idleness", async () => {
    const stage = newStage({ idleTimeoutMs: IDLE_MS });
    const { fleet, backend } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    const fail = backend.fail("activity", new Error("no answer"));
    await stage.advance(5 * IDLE_MS);
    expect(stage.objects()).toHaveLength(1);
    fail();
    const gate = backend.hang("activity");
    await stage.advance(5 * IDLE_MS);
    expect(stage.objects()).toHaveLength(1);
    gate.open();
    await stage.advance(10_000);
    expect(stage.objects()).toEqual([]);
  });

  test("sandboxes that are due together end together: work may begin in one while the stop of another waits", async () => {
    const stage = newStage({ idleTimeoutMs: IDLE_MS });
    const { fleet, store } = await stage.open();
    for (const thread of ["t1", "t2", "t3"]) await (await fleet.acquire({ thread })).release();
    const gate = store.hang("stop");
    await stage.time.untilTrue("the reaper ends one", () => gate.arrived > 0);
    await stage.settle();
    expect(gate.arrived).toBe(3);
    gate.open();
    await stage.advance(1_000);
    expect(stage.objects()).toEqual([]);
  });

  test("idleTimeoutMs 0 keeps a parked sandbox", async () => {
    const stage = newStage({ idleTimeoutMs: 0, maxLifetimeMs: 0 });
    const { fleet } = await stage.open();
    await (await fleet.acquire({ thread: "t1" })).release();
    await stage.advance(3_600_000);
    expect(stage.objects()).toHaveLength(1);
  });

  test("the maximum lifetime ends also a busy one, once nobody holds it", async () => {
    const stage = newStage({ idleTimeoutMs: IDLE_MS, maxLifetimeMs: 10 * IDLE_MS });
    const { fleet, eventsOf } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.sandbox.exec("sleep 100000 &", { timeoutMs: 0 });
    await lease.release();
    await stage.advance(10 * IDLE_MS - 1);
    expect(stage.objects()).toHaveLength(1);
    await stage.advance(8_000);
    expect(stage.objects()).toEqual([]);
    expect(eventsOf("sandbox-stopped").map(({ reason }) => reason)).toEqual(["expired"]);
  });

  test("an acquire that comes while the reaper decides keeps its sandbox", async () => {
    const stage = newStage({ idleTimeoutMs: IDLE_MS });
    const { fleet, backend } = await stage.open();
    const first = await fleet.acquire({ thread: "t1" });
    await first.release();
    const gate = backend.hang("activity", { when: "after" });
    await stage.time.untilTrue("the reaper asks", () => gate.arrived > 0);
    await using lease = await stage.until(fleet.acquire({ thread: "t1" }), 0);
    gate.open();
    await stage.advance(1_000);
    expect(lease.sandbox.id).toBe(first.sandbox.id);
    expect((await lease.sandbox.exec("echo on")).stdout).toBe("on\n");
  });
});
