/**
 * Limits how many sandboxes start at once. A start is nearly all processor time: more starts than processors only delay
 * each other. Later ones wait, in order.
 */

export class ConcurrencyLimit {
  readonly #max: number;
  readonly #waiting: (() => void)[] = [];
  #taken = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** Waits for a turn, then works. An abort meanwhile leaves the queue. */
  async run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    if (this.#taken < this.#max) this.#taken += 1;
    else await this.#stand(signal);
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      // The turn is handed on directly: no newcomer gets in between.
      if (next === undefined) this.#taken -= 1;
      else next();
    }
  }

  #stand(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const go = (): void => {
        signal.removeEventListener("abort", leave);
        resolve();
      };
      const leave = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(go), 1);
        reject(signal.reason);
      };
      this.#waiting.push(go);
      signal.addEventListener("abort", leave, { once: true });
    });
  }
}
