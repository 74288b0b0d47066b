/** Checks of options that several calls of a fleet share. */

import { DEFAULT_USER, parseUserId, SandlotError, type UserId } from "@sandlot/contract";

/** The longest delay a timer can have; more would fire at once. */
const DELAY_MAX_MS = 2_147_483_647;

export function parseUser(user: string | undefined): UserId {
  return user === undefined ? DEFAULT_USER : parseUserId(user);
}

export function parseDelay(field: string, value: number): number {
  if (Number.isFinite(value) && value > 0 && value <= DELAY_MAX_MS) return value;
  throw new SandlotError("invalid_request", {
    field,
    problem: `must be a number of milliseconds from 1 to ${DELAY_MAX_MS}, not ${value}`,
  });
}
