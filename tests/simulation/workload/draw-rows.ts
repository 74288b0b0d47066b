/** Whether the instances of a shared store run `RowStore`, and what happens to its database: lost writes, a set clock. */

import { Random } from "../schedule/random.ts";

export interface DrawnRows {
  readonly isRows: boolean;
  readonly mayRewind: boolean;
  readonly isClockSet: boolean;
  /** For the rewinds of a run. */
  readonly random: Random;
}

/** Of the runs with a shared store. */
const ROWS_SHARE = 0.5;
const REWIND_SHARE = 0.5;
const CLOCK_SHARE = 0.2;

export function drawRows(seed: number, isShared: boolean): DrawnRows {
  const random = new Random(seed, 12);
  const isRows = random.chance(ROWS_SHARE) && isShared;
  const mayRewind = random.chance(REWIND_SHARE) && isRows;
  const isClockSet = new Random(seed, 13).chance(CLOCK_SHARE) && isRows;
  return { isRows, mayRewind, isClockSet, random };
}
