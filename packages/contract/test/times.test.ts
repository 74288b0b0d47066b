/** Times that a sandbox may send: any number becomes a date. */

import { describe, expect, it } from "vitest";
import { dateOf, httpTime, isoTime } from "../src/index.ts";

describe("a time", () => {
  it("is written as usual where it is one", () => {
    expect(isoTime(1_770_000_000_123)).toBe("2026-02-02T02:40:00.123Z");
    expect(httpTime(1_770_000_000_123)).toBe("Mon, 02 Feb 2026 02:40:00 GMT");
    expect(httpTime(0)).toBe("Thu, 01 Jan 1970 00:00:00 GMT");
  });

  it.each([
    [8.64e15, "+275760-09-13T00:00:00.000Z"],
    [8.64e15 + 1, "+275760-09-13T00:00:00.000Z"],
    [1e300, "+275760-09-13T00:00:00.000Z"],
    [Number.POSITIVE_INFINITY, "+275760-09-13T00:00:00.000Z"],
    [-1e300, "-271821-04-20T00:00:00.000Z"],
    [Number.NEGATIVE_INFINITY, "-271821-04-20T00:00:00.000Z"],
    [Number.NaN, "1970-01-01T00:00:00.000Z"],
  ])("of %d ms is the nearest date, and no header", (ms, text) => {
    expect(isoTime(ms)).toBe(text);
    expect(dateOf(ms).getTime()).not.toBeNaN();
    expect(httpTime(ms)).toBeNull();
  });
});
