import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { LastSeen } from "../../../src/lifecycle/housekeeping/last-seen.ts";

describe("sightings", () => {
  test("count from the first time something was seen as it is", () => {
    const sightings = new LastSeen<string, number>();
    expect(sightings.observe([["a", 1]], 100, 0).get("a")).toBe(0);
    expect(sightings.observe([["a", 1]], 150, 0).get("a")).toBe(50);
    expect(sightings.observe([["a", 2]], 160, 0).get("a")).toBe(0);
    expect(sightings.observe([["a", 2]], 170, 0).get("a")).toBe(10);
  });

  test("forget what is gone, so that it counts anew when it comes back", () => {
    const sightings = new LastSeen<string, number>();
    sightings.observe([["a", 1]], 100, 0);
    expect(sightings.observe([], 150, 0).size).toBe(0);
    expect(sightings.observe([["a", 1]], 200, 0).get("a")).toBe(0);
  });

  test.each([
    [99, 50],
    [100, 50],
    [101, 0],
  ])("what was seen at 100 counts if sight is unbroken since %i: %i ms at 150", (since, expected) => {
    const sightings = new LastSeen<string, number>();
    sightings.observe([["a", 1]], 100, 0);
    expect(sightings.observe([["a", 1]], 150, since).get("a")).toBe(expected);
  });

  test("say nothing while there is no sight at all", () => {
    const sightings = new LastSeen<string, number>();
    sightings.observe([["a", 1]], 100, Infinity);
    expect(sightings.observe([["a", 1]], 10_000, Infinity).get("a")).toBe(0);
  });

  test("for any history: never longer than unbroken sight, nor than the value has been what it is", () => {
    const look = fc.record({ afterMs: fc.integer({ min: 0, max: 3 }), value: fc.nat(1), blind: fc.boolean() });
    fc.assert(
      fc.property(fc.array(look, { maxLength: 30 }), (looks) => {
        const sightings = new LastSeen<string, number>();
        let now = 10;
        let since = 0;
        let unchangedSince = 0;
        let last: number | null = null;
        for (const { afterMs, value, blind } of looks) {
          now += afterMs;
          if (blind) since = now;
          if (value !== last || unchangedSince < since) unchangedSince = now;
          last = value;
          expect(sightings.observe([["a", value]], now, since).get("a")).toBe(now - unchangedSince);
        }
      }),
    );
  });
});
