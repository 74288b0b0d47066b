/**
 * Amounts in a configuration: durations, sizes and counts, with what is wrong with one in words.
 */

import { z } from "zod";

/** The longest a Node timer can wait (24.8 days). A longer one would fire at once. */
export const DURATION_MAX_MS = 2_147_483_647;
/** Far beyond any machine; catches a size typed into a count. */
export const COUNT_MAX = 1_000_000;

const duration = z.int().max(DURATION_MAX_MS, `must be at most ${DURATION_MAX_MS} ms (24.8 days)`);
export const size = z.int().min(1, "must be at least 1 byte");
export const count = z.int().max(COUNT_MAX, `must be at most ${COUNT_MAX}`);

/** A duration that can be switched off. */
export function durationOrOff(zeroMeans: string) {
  return duration.min(0, `must not be negative; 0 means ${zeroMeans}`);
}

/** A duration that cannot be 0, and why. */
export function durationOverZero(because: string) {
  return duration.min(1, `must be at least 1 ms: ${because}`);
}
