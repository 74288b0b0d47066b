/**
 * Waits for a lock without blocking: SQLite is synchronous, so a try is short and the waiting happens between tries.
 */

import { SandlotError } from "@sandlot/contract";
import { troubleOf } from "../../world/sqlite-driver.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";

/** Long enough between tries that blocking tries stay a small share of the time, short enough to be next in line. */
const RETRY_MIN_MS = 2;
const RETRY_MAX_MS = 64;
/** The `retryAfterMs` of a caller. */
export const RETRY_AFTER_MS = 250;

export interface Patience {
  readonly world: World;
  /** Named in the error when time runs out. */
  readonly operation: string;
  /** When to give up, on the world's monotonic clock. */
  readonly deadline: number;
}

/** Tries until it is not busy. Every other failure is the caller's. The first try is immediate. */
export async function whenFree<T>(patience: Patience, attempt: () => T): Promise<T> {
  for (let tries = 0; ; tries += 1) {
    try {
      return attempt();
    } catch (error) {
      if (troubleOf(error)?.kind !== "busy") throw error;
      await pause(patience, tries, error);
    }
  }
}

/** The wait between two tries, with jitter so that several waiters do not meet again. Rejects when time is up. */
export async function pause(patience: Patience, tries: number, cause: unknown): Promise<void> {
  const { world, operation, deadline } = patience;
  const left = deadline - world.monotonicMs();
  if (left <= 0) {
    const problem = `${troubleOf(cause)?.problem ?? "it is busy"}, and did so until time ran out`;
    throw new SandlotError("store_unavailable", { operation, problem, retryAfterMs: RETRY_AFTER_MS }, { cause });
  }
  const longest = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** Math.min(tries, 10));
  await sleep(world, Math.min(left, longest * (0.5 + world.random() / 2)));
}
