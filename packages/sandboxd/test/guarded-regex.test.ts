/** Patterns from outside: endless ones are abandoned, and slow ones are not. */

import { isSandlotError } from "@sandlot/contract";
import { expect, it } from "vitest";
import { guarded } from "../src/patterns/guarded-regex.ts";

it("gives up on a pattern that takes the processor for ever, and works again after it", () => {
  const text = `${"a".repeat(60)}!`;
  const problem = attempt(() => guarded("(a+)+$", () => /(a+)+$/.test(text)));
  expect(isSandlotError(problem, "invalid_pattern")).toBe(true);
  expect(guarded("a", () => /a/.test(text))).toBe(true);
});

it("does not take a machine that had no time for it for such a pattern", () => {
  let rounds = 0;
  const starved = () => {
    rounds += 1;
    // Waits without using the processor, like a descheduled process.
    if (rounds === 1) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5_000);
    return /b/.test("abc");
  };
  expect(guarded("b", starved)).toBe(true);
  expect(rounds).toBeGreaterThan(1);
});

it("lets errors of the work through", () => {
  expect(String(attempt(() => guarded("x", () => JSON.parse("{"))))).toContain("SyntaxError");
});

function attempt(work: () => unknown): unknown {
  try {
    return work();
  } catch (error) {
    return error;
  }
}
