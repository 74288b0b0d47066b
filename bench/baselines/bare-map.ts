/** A Map of counters and nothing around it: what looking a key up costs, and how that grows with the number of keys. */

export class BareMap {
  readonly #counts = new Map<string, number>();

  acquire(key: string): void {
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
  }

  release(key: string): void {
    this.#counts.set(key, (this.#counts.get(key) ?? 0) - 1);
  }
}
