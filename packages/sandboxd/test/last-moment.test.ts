/** A moment whose age stays right, whatever the wall clock does. */

import { afterEach, expect, test, vi } from "vitest";
import { LastMoment } from "../src/introspection/activity.ts";

afterEach(() => {
  vi.useRealTimers();
});

test("a step of the wall clock does not make it longer ago, or shorter", () => {
  vi.useFakeTimers({ toFake: ["Date"] });
  const moment = new LastMoment();
  expect(moment.wallMs).toBeNull();
  moment.note();
  for (const stepMs of [3_600_000, -7_200_000]) {
    vi.setSystemTime(Date.now() + stepMs);
    const agoMs = Date.now() - (moment.wallMs ?? 0);
    expect(agoMs).toBeGreaterThanOrEqual(0);
    expect(agoMs).toBeLessThan(60_000);
  }
});
