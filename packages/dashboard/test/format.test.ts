/** Values as people read them, whatever a sandbox sends. */

import { expect, test } from "vitest";
import { ageOf, bytes, dateTime, duration, short, visible } from "../src/format.ts";

test("what would turn text around, hide in it or break its line is shown as what it is", () => {
  expect(visible("\u202egnp.exe")).toBe("\\u202egnp.exe");
  expect(visible("a\nb\u001b[31m\u0000")).toBe("a\\u000ab\\u001b[31m\\u0000");
  expect(visible("\u200bzero\u2066iso\ufeff")).toBe("\\u200bzero\\u2066iso\\ufeff");
  expect(visible("ü <b>“x”</b> 漢字 🎉")).toBe("ü <b>“x”</b> 漢字 🎉");
  expect(short("x".repeat(1_000), 10)).toBe(`${"x".repeat(10)}…`);
});

test("a time that is no date is shown as it is", () => {
  for (const at of [Number.NaN, Number.POSITIVE_INFINITY, 1e300, -1e300]) expect(dateTime(at)).toBe(String(at));
  expect(dateTime(0)).toMatch(/^19(70|69)-/);
});

test("sizes, durations and ages have a unit that fits", () => {
  expect([0, 1023, 1024, 1536, 200 * 1024 ** 2].map(bytes)).toEqual(["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "200 MiB"]);
  expect([0.5, 12.34, 1_234, 12_345].map(duration)).toEqual(["0.50 ms", "12.3 ms", "1234 ms", "12.3 s"]);
  expect([0, 61_000, 3_660_000, 90_000_000].map((ms) => ageOf(0, ms))).toEqual([
    "0 s",
    "1 min",
    "1 h 1 min",
    "1 d 1 h",
  ]);
  expect(ageOf(5_000, 0)).toBe("0 s");
});
