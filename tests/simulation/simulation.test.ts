/** The simulation itself: the seed alone determines a run, and its time is only virtual. */

import { describe, expect, it } from "vitest";
import { runSeed } from "./run.ts";
import { Random } from "./schedule/random.ts";
import { Scheduler } from "./schedule/scheduler.ts";

describe("a run", () => {
  it("is the same each time it is run with the same seed", { timeout: 60_000 }, async () => {
    for (const seed of [3, 1_000_003]) {
      const [one, other] = [await runSeed(seed), await runSeed(seed)];
      expect(other.hash).toBe(one.hash);
      expect(other.events).toBe(one.events);
      expect(other.checks).toEqual(one.checks);
      const traced = await runSeed(seed, { keepTrace: true });
      expect(traced.hash).toBe(one.hash);
      expect(traced.trace?.length).toBeGreaterThan(200);
    }
  });

  it("differs from seed to seed", { timeout: 60_000 }, async () => {
    const hashes = new Set([(await runSeed(1)).hash, (await runSeed(2)).hash, (await runSeed(3)).hash]);
    expect(hashes.size).toBe(3);
  });
});

describe("the scheduler", () => {
  it("runs events in the order of their moments, and microtasks between two of them", async () => {
    const scheduler = new Scheduler((error) => {
      throw error;
    });
    const seen: string[] = [];
    scheduler.after(20, () => seen.push(`late at ${scheduler.now}`));
    scheduler.after(10, () => {
      void Promise.resolve()
        .then(() => undefined)
        .then(() => seen.push("microtask"));
    });
    scheduler.after(10, () => seen.push("second"));
    await scheduler.run(15);
    expect(seen).toEqual(["microtask", "second"]);
    expect(scheduler.now).toBe(15);
    await scheduler.run(100);
    expect(seen).toEqual(["microtask", "second", "late at 20"]);
  });

  it("forgets what was cancelled, and goes on after an event that throws", async () => {
    const thrown: unknown[] = [];
    const scheduler = new Scheduler((error) => thrown.push(error));
    let ran = 0;
    scheduler.after(1, () => {
      throw new Error("planted");
    });
    scheduler.after(2, () => (ran += 1)).cancel();
    scheduler.after(3, () => (ran += 1));
    await scheduler.run(10);
    expect(ran).toBe(1);
    expect(thrown).toHaveLength(1);
  });
});

describe("chance", () => {
  it("covers its range, both ends included", () => {
    const random = new Random(7);
    const seen = new Set(Array.from({ length: 500 }, () => random.between(1, 4)));
    expect([...seen].sort()).toEqual([1, 2, 3, 4]);
  });
});
