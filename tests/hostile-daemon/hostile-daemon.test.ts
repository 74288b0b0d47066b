/** A daemon that violates the protocol on purpose, against every part of the host that talks to one. */

import { expect, test } from "vitest";
import { lines, runHostile } from "./run.ts";

test.each([
  ["a fixed seed", 14],
  ["a new one", Date.now() % 1_000_000],
])("1,000 cases from %s: the process survives, and every call ends in time, typed and bounded", async (_, seed) => {
  const report = await runHostile({ cases: 1_000, seed });
  for (const line of lines(report)) console.log(line);
  expect(report.problems).toEqual([]);
});
