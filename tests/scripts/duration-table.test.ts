/** The end of a run says where its time went. */

import { expect, it } from "vitest";
import { durationTable } from "../../scripts/duration-table.ts";

it("shows each step with its share, the sum, and the slowest test files", () => {
  const slowest = [{ path: "a.test.ts", seconds: 20 }];
  expect(
    durationTable([
      { name: "lint", passed: 1, failed: 0, seconds: 10, slowest: [] },
      { name: "vitest", passed: 99, failed: 1, seconds: 30, slowest },
    ]),
  ).toEqual([
    "ok     lint                      10.0 s  25 %   1 passed, 0 failed",
    "FAILED vitest                    30.0 s  75 %   99 passed, 1 failed",
    "total                            40.0 s",
    "the slowest test files:",
    "          20.0 s a.test.ts (vitest)",
  ]);
});

it("is one line when no step has run", () => {
  expect(durationTable([])).toEqual(["total                             0.0 s"]);
});
