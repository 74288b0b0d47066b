/** When an instance's clocks and the store's count as having come apart. */

import type { Epoch } from "@sandlot/contract";
import { expect, test } from "vitest";
import { StoreClockSight } from "../../../src/lifecycle/session/store-clock-sight.ts";

const EPOCH = "epoch" as Epoch;

function stage() {
  const clock = { ms: 1_000 };
  const sight = new StoreClockSight({ monotonicMs: () => clock.ms });
  /** A beat that is sent now, and answered after `travelMs` with the store's time at its arrival there. */
  const beat = (storeNow: number, travelMs = 0, epoch = EPOCH) => {
    const sentAt = clock.ms;
    clock.ms += travelMs;
    return sight.read({ now: storeNow, epoch }, sentAt);
  };
  return { clock, sight, beat };
}

test("clocks that go on together have not come apart, also when answers are slow", () => {
  const { clock, beat, sight } = stage();
  expect(beat(50_000)).toBe(false);
  clock.ms += 3_000;
  expect(beat(53_000, 5_000)).toBe(false);
  clock.ms += 1_000;
  expect(beat(59_000)).toBe(false);
  expect([sight.earliest(), sight.latest()]).toEqual([59_000, 59_000]);
});

test("a machine that was frozen, whose own clocks stood together, sees that the store went on", () => {
  const { clock, beat } = stage();
  expect(beat(50_000)).toBe(false);
  clock.ms += 3_000;
  expect(beat(73_000)).toBe(true);
  clock.ms += 3_000;
  expect(beat(76_000)).toBe(false);
});

test("a store whose clock was set back is noticed, and a difference of a second is not", () => {
  const { clock, beat } = stage();
  expect(beat(50_000)).toBe(false);
  clock.ms += 3_000;
  expect(beat(52_000)).toBe(false);
  clock.ms += 3_000;
  expect(beat(53_900)).toBe(true);
});

test("the travel time of a beat may hide a jump, and is no jump itself", () => {
  const { clock, beat } = stage();
  expect(beat(50_000, 4_000)).toBe(false);
  clock.ms += 1_000;
  expect(beat(52_000)).toBe(false);
});

test("another store has another clock", () => {
  const { beat, sight } = stage();
  expect(beat(50_000)).toBe(false);
  expect(sight.isOf(EPOCH)).toBe(true);
  expect(beat(9_000_000, 0, "next" as Epoch)).toBe(false);
  expect(sight.isOf(EPOCH)).toBe(false);
});
