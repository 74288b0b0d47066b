/**
 * The names of epochs of shared rows, in the order in which they began: `<begun at, in hex>-<random>`.
 *
 * A database that is restored to an earlier moment, or a replica that was far behind, shows an epoch that was over. A
 * process that joined later never saw that epoch, so only the name tells that it is an earlier one.
 *
 * - A later epoch has a higher number: the server's time in milliseconds, or the number of the known epoch plus one where
 *   that is more.
 * - A name without a number is neither earlier nor later than another.
 */

import type { Epoch } from "@sandlot/contract";

const NAME = /^([0-9a-f]{12})-[0-9a-f]+$/;
const DIGITS = 12;

/** A name for the epoch after `known`. `now`: Unix milliseconds. */
export function epochAfter(known: Epoch | null, now: number, random: string): Epoch {
  const least = known === null ? 1 : (numberOf(known) ?? 0) + 1;
  const number = Math.max(least, Number.isFinite(now) ? Math.floor(now) : 0);
  return `${number.toString(16).padStart(DIGITS, "0")}-${random}` as Epoch;
}

export function isEarlier(one: Epoch, other: Epoch): boolean {
  const [first, second] = [numberOf(one), numberOf(other)];
  return first !== null && second !== null && first < second;
}

function numberOf(epoch: Epoch): number | null {
  const digits = NAME.exec(epoch)?.[1];
  return digits === undefined ? null : Number.parseInt(digits, 16);
}
