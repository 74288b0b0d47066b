/**
 * When something last happened. Stored on the monotonic clock and reported on the present wall clock, so that a
 * comparison with the host's wall clock is right, also after that was stepped.
 */

import { monotonicMs, wallMs } from "../clock.ts";

export class LastMoment {
  #at: number | null = null;

  note(): void {
    this.#at = monotonicMs();
  }

  /** `null`: never. */
  get wallMs(): number | null {
    return this.#at === null ? null : wallMs() - (monotonicMs() - this.#at);
  }
}
