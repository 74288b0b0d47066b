/**
 * The store's clock as this instance sees it: the time in the last beat's answer, moved by our own monotonic clock. A
 * step of the local wall clock does not move it.
 *
 * Invariant: the offset between the two clocks lies between `least` (the answer took no time to arrive) and `most` (the
 * request took none), so the store's time is known within the travel time of one beat.
 */

import type { Epoch } from "@sandlot/contract";
import type { World } from "../../world/world.ts";

/**
 * Clocks that are adjusted gently come apart by less than this between two beats. More is a jump, a sleep or a stop: of
 * this machine, whose own clocks may stand together and show nothing, or of the store's.
 */
export const CLOCK_TOLERANCE_MS = 1_000;

/** The answer to a beat: the store's time, and whose time that is. */
interface Reading {
  readonly now: number;
  readonly epoch: Epoch;
}

export class StoreClockSight {
  readonly #world: Pick<World, "monotonicMs">;
  #epoch: Epoch | null = null;
  #least = 0;
  #most = 0;

  constructor(world: Pick<World, "monotonicMs">) {
    this.#world = world;
  }

  /** Whether the last reading was of this store. */
  isOf(epoch: Epoch): boolean {
    return this.#epoch === epoch;
  }

  /** The earliest possible time at the store; it decides what has ended. */
  earliest(): number {
    return this.#world.monotonicMs() + this.#least;
  }

  /** The latest possible time at the store. It decides whether a new lease may begin. */
  latest(): number {
    return this.#world.monotonicMs() + this.#most;
  }

  /** Takes the reading of a beat that was sent at `sentAt`. True when the clocks have come apart since the last one. */
  read({ now, epoch }: Reading, sentAt: number): boolean {
    const least = now - this.#world.monotonicMs();
    const most = now - sentAt;
    const isApart = least > this.#most + CLOCK_TOLERANCE_MS || most < this.#least - CLOCK_TOLERANCE_MS;
    const hasJumped = this.#epoch === epoch && isApart;
    this.#epoch = epoch;
    this.#least = least;
    this.#most = most;
    return hasJumped;
  }
}
