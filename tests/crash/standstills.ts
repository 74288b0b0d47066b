/**
 * The times in which this process did not run, although it wanted to: a timer fired late. A process without a processor
 * cannot keep a deadline.
 */

const WATCH_MS = 25;
const KEPT_MAX = 1_000;

export class Standstills {
  /** After this long, a standstill that has just ended is known. */
  static readonly knownAfterMs = 2 * WATCH_MS;
  readonly #all: { readonly from: number; readonly to: number }[] = [];
  readonly #timer: NodeJS.Timeout;

  constructor() {
    let expectedAt = performance.now() + WATCH_MS;
    this.#timer = setInterval(() => {
      const to = performance.now();
      if (to - expectedAt > WATCH_MS) this.#all.push({ from: expectedAt, to });
      if (this.#all.length > KEPT_MAX) this.#all.shift();
      expectedAt = to + WATCH_MS;
    }, WATCH_MS);
    this.#timer.unref();
  }

  /** How much of this time was a standstill. */
  between(from: number, to: number): number {
    return this.#all.reduce((sum, one) => sum + Math.max(0, Math.min(to, one.to) - Math.max(from, one.from)), 0);
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
