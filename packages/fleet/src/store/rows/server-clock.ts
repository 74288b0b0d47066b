/**
 * The server's clock as this process knows it: the `now` of its answers, moved by the monotonic clock.
 *
 *   offset = server's now - monotonic      lies between now - (moment of arrival) and now - (moment of sending)
 *
 * Invariants
 * - The estimate is never ahead of the server, unless the server's clock was set back since the last answer.
 * - The answer that travelled fastest decides, as long as the later ones do not contradict it.
 */

import type { World } from "../../world/world.ts";

export class ServerClock {
  readonly #world: Pick<World, "monotonicMs">;
  #offset = Number.NEGATIVE_INFINITY;

  constructor(world: Pick<World, "monotonicMs">) {
    this.#world = world;
  }

  /** An answer to a request that was sent at `sentAt`, on the monotonic clock, says `now`. */
  heard(now: number, sentAt: number): void {
    const least = now - this.#world.monotonicMs();
    // A clock that is read in whole milliseconds is up to one behind.
    const most = now + 1 - sentAt;
    this.#offset = this.#offset > most ? least : Math.max(this.#offset, least);
  }

  /** Before the first answer it is long ago. */
  now(): number {
    return Math.floor(this.#world.monotonicMs() + this.#offset);
  }
}
