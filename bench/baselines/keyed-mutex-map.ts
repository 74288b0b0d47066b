/**
 * The minimal safe way to count users by key in asynchronous code: a Map of counters, and a mutex per key made of
 * promise tails.
 */

export class KeyedMutexMap {
  readonly #counts = new Map<string, number>();
  readonly #tails = new Map<string, Promise<void>>();

  acquire(key: string): Promise<void> {
    return this.#exclusively(key, () => this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1));
  }

  release(key: string): Promise<void> {
    return this.#exclusively(key, () => this.#counts.set(key, (this.#counts.get(key) ?? 0) - 1));
  }

  async #exclusively(key: string, work: () => void): Promise<void> {
    const before = this.#tails.get(key);
    let done: () => void = () => undefined;
    const tail = new Promise<void>((resolve) => {
      done = resolve;
    });
    this.#tails.set(key, tail);
    await before;
    try {
      work();
    } finally {
      if (this.#tails.get(key) === tail) this.#tails.delete(key);
      done();
    }
  }
}
