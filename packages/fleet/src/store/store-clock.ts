/**
 * The store's clock for idleness and age: the host's monotonic clock, moved to about today's date.
 *
 *   now = base + monotonic        `base` is kept in the store, one for each boot of the host
 *
 * Invariants
 * - It never goes back, and never jumps while the host runs: a step of the wall clock does not move it.
 * - Every process of the host reads the same. It stands still while the host sleeps, as everything on it does.
 * - On a new boot it begins at the wall clock, or at the latest time that was ever written, whichever is later.
 */

import type { World } from "../world/world.ts";

/** The clock's part of a store's row `meta`. */
export interface ClockRow {
  /** The boot of `baseMs`; the empty string where the system does not tell boots apart. */
  readonly boot: string;
  readonly baseMs: number;
}

type Clocks = Pick<World, "wallMs" | "monotonicMs"> & { readonly identity: Pick<World["identity"], "bootId"> };

/** The clock of the present boot: the stored one, or a new one. `latestMs` is the latest time in the store. */
export function clockOfBoot(world: Clocks, kept: ClockRow | null, latestMs: number): ClockRow {
  const { bootId } = world.identity;
  const monotonicMs = world.monotonicMs();
  const isKept = kept !== null && kept.boot !== "" && kept.boot === bootId;
  // Within one boot it cannot be behind a written time, unless the two processes do not share a monotonic clock.
  if (isKept && kept.baseMs + monotonicMs + 1 >= latestMs) return kept;
  return { boot: bootId, baseMs: Math.ceil(Math.max(world.wallMs(), latestMs) - monotonicMs) };
}

export function readClock(world: Clocks, { baseMs }: ClockRow): number {
  return Math.floor(baseMs + world.monotonicMs());
}
