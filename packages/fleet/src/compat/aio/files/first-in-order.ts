/** The first of many, in the order of their paths, without holding or sorting all of them at once. */

interface Keyed<T> {
  readonly key: string;
  readonly value: T;
}

/** A directory comes before its content, and that before its neighbours. */
export function orderOf(path: string): string {
  return path.replaceAll("/", "\0");
}

export class FirstInOrder<T> {
  readonly #max: number;
  #held: Keyed<T>[] = [];
  #count = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** Whether some were dropped. */
  get isCut(): boolean {
    return this.#count > this.#max;
  }

  add(key: string, value: T): void {
    this.#count++;
    this.#held.push({ key, value });
    if (this.#held.length > 2 * this.#max) this.#cut();
  }

  values(): readonly T[] {
    this.#cut();
    return this.#held.map(({ value }) => value);
  }

  #cut(): void {
    this.#held.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
    this.#held = this.#held.slice(0, this.#max);
  }
}
