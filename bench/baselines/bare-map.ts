/** A Map of counters and nothing else: the cost of a key look-up, and how it grows with the number of keys. */

export class BareMap {
  readonly #counts = new Map<string, number>();

  acquire(key: string): void {
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  release(key: string): void {
    this.#counts.set(key, (this.#counts.get(key) ?? 0) - 1);
  }
}
