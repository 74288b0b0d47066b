/**
 * When something last happened. Kept on the monotonic clock and told on the wall clock as it is now, so that whoever
 * compares it with the wall clock of the same host is right, also when that was stepped meanwhile.
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
