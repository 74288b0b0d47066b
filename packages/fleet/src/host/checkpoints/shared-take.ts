/** One take that several callers wait for. It ends early when the last of them gives up. */

import type { Taken } from "../../backend/checkpoints.ts";

export class SharedTake {
  /** Resolves when it is over, however. */
  readonly settled: Promise<void>;
  isOver = false;
  readonly #result: Promise<Taken>;
  readonly #ending = new AbortController();
  #callers = 0;

  constructor(run: (ending: AbortSignal) => Promise<Taken>) {
    // Begins after the constructor: the caller has noted it by then.
    this.#result = Promise.resolve().then(() => run(this.#ending.signal));
    const over = () => {
      this.isOver = true;
    };
    this.settled = this.#result.then(over, over);
  }

  async join(signal: AbortSignal): Promise<Taken> {
    this.#callers++;
    let stop = () => {};
    const stopped = new Promise<never>((_, reject) => {
      stop = () => reject(signal.reason);
      signal.addEventListener("abort", stop, { once: true });
    });
    try {
      return await Promise.race([this.#result, stopped]);
    } finally {
      signal.removeEventListener("abort", stop);
      this.#callers--;
      if (this.#callers === 0 && !this.isOver) {
        this.#ending.abort(signal.reason);
        await this.settled;
      }
    }
  }
}
