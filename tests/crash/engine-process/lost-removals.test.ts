/** Only what a lost epoch can have left behind is excused. */

import { expect, test } from "vitest";
import { isLostRemoval, type Loss } from "./lost-removals.ts";

const LIFETIME_MS = 4_000;
const LOSS: Loss = { openedAt: 1_000, recorded: new Set(["known"]), newEpochAt: 3_000 };

const isLost = (sandboxId: string, landedAt: number, endedAt: number, losses: readonly Loss[] = [LOSS]) =>
  isLostRemoval({ sandboxId, landedAt, endedAt }, losses, LIFETIME_MS);

test("without a failover that began an epoch nothing is excused", () => {
  expect(isLost("known", 0, 2_000, [])).toBe(false);
});

test("a sandbox of a record of the lost epoch is excused if it ended before the new one was known", () => {
  expect(isLost("known", 0, 500)).toBe(true);
  expect(isLost("known", 0, 3_000 + LIFETIME_MS / 2)).toBe(true);
  expect(isLost("known", 0, 3_001 + LIFETIME_MS / 2)).toBe(false);
});

test("a sandbox that the lost epoch did not know is not, unless it began in the window", () => {
  expect(isLost("forgotten", 0, 500)).toBe(false);
  expect(isLost("new", 1_500, 2_000)).toBe(true);
  expect(isLost("later", 3_001, 3_500)).toBe(false);
});
