/**
 * How many sandboxes are started at once. A start is processor time, nearly all of it: more of them than there are
 * processors do not come up sooner, they only make each other late. Whoever comes later waits, in the order of coming.
 */

export class Turns {
  readonly #max: number;
  readonly #waiting: (() => void)[] = [];
  #taken = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** Waits for a turn and works. A signal that fires meanwhile gives the place in the line up. */
  async run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    if (this.#taken < this.#max) this.#taken += 1;
    else await this.#stand(signal);
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      // The turn is handed on as it is: nobody who comes now gets in between.
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
