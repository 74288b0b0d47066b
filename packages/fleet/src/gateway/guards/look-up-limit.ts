/**
 * Concurrent look-ups of keys or URLs that this gateway has never found valid. Callers without a valid one cause them,
 * so their number is bounded: requests with a valid one share the same connections to the store.
 */

import { SandlotError } from "@sandlot/contract";

/** A store answers in milliseconds, so this admits thousands of new callers a second. */
export const LOOK_UPS_MAX = 16;
const RETRY_AFTER_MS = 1_000;

export class LookUpLimit {
  readonly #scope: string;
  #running = 0;

  /** `what` is looked up, for messages. */
  constructor(what: string) {
    this.#scope = `${what} looked up for the first time, at once`;
  }

  /** Rejects with `rate_limited`, without a look-up, where too many are under way. */
  async run<T>(lookUp: () => Promise<T>): Promise<T> {
    if (this.#running >= LOOK_UPS_MAX)
      throw new SandlotError("rate_limited", { scope: this.#scope, max: LOOK_UPS_MAX, retryAfterMs: RETRY_AFTER_MS });
    this.#running += 1;
    try {
      return await lookUp();
    } finally {
      this.#running -= 1;
    }
  }
}
