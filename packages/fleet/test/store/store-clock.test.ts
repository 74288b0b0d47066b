/**
 * The store's clock: a step of the wall clock, a sleep and a reboot of the host, over both stores.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type InstanceId, SandlotError } from "@sandlot/contract";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openSqliteStore } from "../../src/store/sqlite/sqlite-store.ts";
import { clockOfBoot, readClock } from "../../src/store/store-clock.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import type { World } from "../../src/world/world.ts";
import { newStage, newStageOn, STORE_KINDS } from "../support/stage.ts";

const HOUR_MS = 3_600_000;

describe.each(STORE_KINDS)("a step of the host's wall clock, over the %s store,", (kind) => {
  const opened = async (config: { idleTimeoutMs: number; maxLifetimeMs?: number }) => {
    const stage = newStageOn(kind, { sessionLifetimeMs: 15_000, ...config });
    const instance = await stage.open();
    const step = (ms: number) => {
      instance.world.stepWallClock(ms);
      stage.engineWorld.stepWallClock(ms);
    };
    return { stage, step, ...instance };
  };

  test("forward does not end what was parked a moment ago", async () => {
    const { stage, step, fleet } = await opened({ idleTimeoutMs: 600_000 });
    await (await fleet.acquire({ thread: "t1" })).release();
    await stage.advance(2_000);
    step(HOUR_MS);
    await stage.advance(120_000);
    expect(stage.objects()).toHaveLength(1);
    await stage.advance(600_000);
    expect(stage.objects()).toEqual([]);
  });

  test("forward beyond the maximum lifetime refuses no lease on what is held", async () => {
    const { stage, step, fleet } = await opened({ idleTimeoutMs: 0, maxLifetimeMs: 24 * HOUR_MS });
    await using _held = await fleet.acquire({ thread: "t1" });
    step(25 * HOUR_MS);
    await stage.advance(30_000);
    await (await stage.until(fleet.acquire({ thread: "t1" }))).release();
  });

  test("back does not keep what is idle", async () => {
    const { stage, step, fleet } = await opened({ idleTimeoutMs: 60_000 });
    await (await fleet.acquire({ thread: "t1" })).release();
    step(-HOUR_MS);
    await stage.advance(120_000);
    expect(stage.objects()).toEqual([]);
  });

  test("before the store was lost does not age what its holders put back", async () => {
    const { stage, step, fleet, events } = await opened({ idleTimeoutMs: 0, maxLifetimeMs: 2 * HOUR_MS });
    const held = await fleet.acquire({ thread: "t1" });
    step(3 * HOUR_MS);
    await stage.advance(30_000);
    await stage.loseStore();
    await stage.advance(60_000);
    expect(events.map(({ type }) => type)).toContain("epoch-changed");
    await (await stage.until(fleet.acquire({ thread: "t1" }))).release();
    await held.release();
    await stage.advance(HOUR_MS);
    expect(stage.objects()).toHaveLength(1);
    await stage.advance(2 * HOUR_MS);
    expect(stage.objects()).toEqual([]);
  });

  test("does not age what is put back either, where the answer to the registration was lost", async () => {
    const { stage, step, fleet, store } = await opened({ idleTimeoutMs: 0, maxLifetimeMs: 2 * HOUR_MS });
    const held = await fleet.acquire({ thread: "t1" });
    let lost = 0;
    store.on("beat", async (proceed, { register }) => {
      const answer = await proceed();
      if (!register || lost > 0) return answer;
      lost += 1;
      throw new SandlotError("store_unavailable", { operation: "beat", problem: "planted", retryAfterMs: 100 });
    });
    step(3 * HOUR_MS);
    await stage.advance(30_000);
    await stage.loseStore();
    await stage.advance(60_000);
    expect(lost).toBe(1);
    await (await stage.until(fleet.acquire({ thread: "t1" }))).release();
    await held.release();
    await stage.advance(HOUR_MS);
    expect(stage.objects()).toHaveLength(1);
  });
});

test("a store that begins anew with a wall clock that was set back learns the generations that the engine knows", async () => {
  const stage = newStage({ sessionLifetimeMs: 15_000 });
  const { fleet, backend } = await stage.open();
  const current = stage.time.now + 4_000_000_000_000;
  let refused = 0;
  // As workspaces on disk refuse a generation older than the last one that used them.
  backend.on("create", (proceed, { labels, generation }) => {
    if (generation > current) return proceed();
    refused += 1;
    return Promise.reject(new SandlotError("stale_generation", { sandboxId: labels.sandboxId, generation, current }));
  });
  await using lease = await stage.until(fleet.acquire({ thread: "t1" }));
  expect(lease.generation).toBeGreaterThan(current);
  expect(refused).toBe(1);
});

describe("the clock of a boot", () => {
  const host = (wall: number, monotonic: number, bootId = "boot") => ({
    wallMs: () => wall,
    monotonicMs: () => monotonic,
    identity: { bootId },
  });

  test("begins at the wall clock, and is kept for every process of the boot", () => {
    const first = clockOfBoot(host(1_000_000, 500), null, 0);
    expect(readClock(host(0, 500), first)).toBe(1_000_000);
    expect(clockOfBoot(host(9_000_000, 800), first, 1_000_200)).toBe(first);
    expect(readClock(host(0, 800.7), first)).toBe(1_000_300);
  });

  test("of another boot begins at the wall clock, and never before what was written", () => {
    const former = clockOfBoot(host(1_000_000, 500), null, 0);
    const later = clockOfBoot(host(5_000_000, 3, "next"), former, 1_400_000);
    expect(readClock(host(0, 3), later)).toBe(5_000_000);
    const back = clockOfBoot(host(7, 3, "next"), former, 1_400_000);
    expect(readClock(host(0, 3), back)).toBe(1_400_000);
  });

  test("is begun anew where boots cannot be told apart, or where the monotonic clock is not the one it was", () => {
    const unknown = clockOfBoot(host(1_000_000, 500, ""), null, 0);
    expect(readClock(host(0, 4), clockOfBoot(host(2_000_000, 4, ""), unknown, 1_000_000))).toBe(2_000_000);
    const kept = clockOfBoot(host(1_000_000, 500), null, 0);
    expect(readClock(host(0, 4), clockOfBoot(host(2_000_000, 4), kept, 1_000_900))).toBe(2_000_000);
  });
});

describe("a SQLite file", () => {
  let home: string;
  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), "sandlot-clock-"));
  });
  afterEach(() => rmSync(home, { recursive: true, force: true }));

  const real = systemWorld();
  /** The time that the store gives its next session. */
  const timeOf = async (world: Partial<World> & { bootId?: string }) => {
    const identity = { ...real.identity, bootId: world.bootId ?? "boot-1" };
    const store = await openSqliteStore({ path: join(home, "store.db"), world: { ...real, identity, ...world } });
    try {
      const request = {
        engines: [],
        address: null,
        beat: 1,
        epoch: null,
        register: true,
        held: [],
        asOf: 0,
        generationFloor: 0,
      };
      const instance = `i-${real.randomHex(4)}` as InstanceId;
      const answer = await store.beat({ ...request, instance, identity });
      return answer.kind === "ok" ? answer.now : Number.NaN;
    } finally {
      await store.close();
    }
  };

  test("keeps its clock over processes of one boot, whatever their wall clocks say", async () => {
    const start = await timeOf({ wallMs: () => 1_900_000_000_000, monotonicMs: () => 1_000 });
    expect(start).toBe(1_900_000_000_000);
    expect(await timeOf({ wallMs: () => 2_000_000_000_000, monotonicMs: () => 4_000 })).toBe(start + 3_000);
    expect(await timeOf({ wallMs: () => 1, monotonicMs: () => 5_000 })).toBe(start + 4_000);
  });

  test("goes on after a reboot from the wall clock, and never behind what was written", async () => {
    const start = await timeOf({ wallMs: () => 1_900_000_000_000, monotonicMs: () => 1_000 });
    const ahead = await timeOf({ wallMs: () => start + 50_000, monotonicMs: () => 10, bootId: "boot-2" });
    expect(ahead).toBe(start + 50_000);
    const behind = await timeOf({ wallMs: () => start - 50_000, monotonicMs: () => 10, bootId: "boot-3" });
    expect(behind).toBe(ahead);
  });

  test("reads the real machine's clock as every process of it does", async () => {
    const bootId = real.identity.bootId;
    const [one, other] = [await timeOf({ bootId }), await timeOf({ bootId })];
    expect(other).toBeGreaterThanOrEqual(one);
    expect(Math.abs(other - Date.now())).toBeLessThan(60_000);
  });
});
