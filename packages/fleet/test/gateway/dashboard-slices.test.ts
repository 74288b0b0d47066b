/** Six hours of what happened, in bounded memory. */

import { expect, test } from "vitest";
import { SLICE_MS, Slices } from "../../src/gateway/dashboard/slices.ts";
import type { World } from "../../src/world/world.ts";

function clock() {
  let now = 1_000_000_000_000;
  const world = { wallMs: () => now } as World;
  return { world, set: (ms: number) => (now = ms), pass: (ms: number) => (now += ms), now: () => now };
}

test("keep six hours and no more, and join into as many as are asked for", () => {
  const { world, pass } = clock();
  const slices = new Slices(world);
  for (let at = 0; at < 3_000; at += 1) {
    slices.count("execs");
    slices.acquired("cold", at);
    slices.sampled(at, 1);
    pass(SLICE_MS);
  }
  expect(slices.read(10_000).length).toBeLessThanOrEqual(2_160);
  const joined = slices.read(100);
  expect(joined.length).toBeLessThanOrEqual(100);
  expect(joined.map(({ at }) => at)).toEqual([...joined.map(({ at }) => at)].sort((a, b) => a - b));
  // What was joined is the sum, and of sizes and times the largest.
  const last = joined.at(-2);
  const width = (joined[1]?.at ?? 0) - (joined[0]?.at ?? 0);
  expect(last?.execs).toBe(width / SLICE_MS);
  expect(last?.acquires.cold?.count).toBe(width / SLICE_MS);
  expect(last?.memoryBytes).toBe(last?.acquires.cold?.p95Ms);
  expect(slices.read(0)).toEqual([]);
});

test("a clock that is set back goes on in the present slice", () => {
  const { world, pass } = clock();
  const slices = new Slices(world);
  slices.count("lost");
  pass(-3_600_000);
  slices.count("lost");
  expect(slices.read(10).map(({ lost }) => lost)).toEqual([2]);
});

test("commands a second are those of the last minute", () => {
  const { world, pass, set } = clock();
  const slices = new Slices(world);
  set(1_000_000_000_000);
  expect(slices.execsPerSecond()).toBe(0);
  for (let at = 0; at < 60; at += 1) {
    for (let each = 0; each < 5; each += 1) slices.count("execs");
    pass(1_000);
  }
  expect(slices.execsPerSecond()).toBeCloseTo(5, 0);
  pass(120_000);
  expect(slices.execsPerSecond()).toBe(0);
});
