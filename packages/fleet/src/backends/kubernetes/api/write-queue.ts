/**
 * Limits how many writes one process sends to the API server at once. Removals go first: they free what the others
 * wait for.
 */

interface Waiting {
  readonly start: () => void;
}

export class WriteQueue {
  readonly #max: number;
  readonly #removals: Waiting[] = [];
  readonly #others: Waiting[] = [];
  #running = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** Waits for a turn, then works. An abort meanwhile leaves the queue. */
  async run<T>(isRemoval: boolean, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    if (this.#running < this.#max) this.#running += 1;
    else await this.#turn(isRemoval ? this.#removals : this.#others, signal);
    try {
      return await work();
    } finally {
      const next = this.#removals.shift() ?? this.#others.shift();
      // The turn is handed on directly: no newcomer gets in between.
      if (next === undefined) this.#running -= 1;
      else next.start();
    }
  }

  #turn(line: Waiting[], signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const waiting: Waiting = {
        start: () => {
          signal.removeEventListener("abort", leave);
          resolve();
        },
      };
      const leave = () => {
        line.splice(line.indexOf(waiting), 1);
        reject(signal.reason);
      };
      line.push(waiting);
      signal.addEventListener("abort", leave, { once: true });
    });
  }
}
