/**
 * Chance from a seed (sfc32). Every random number of a run comes from streams forked from one seed, so the seed alone
 * determines the run.
 */

export class Random {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  constructor(seed: number, stream = 0) {
    this.#a = 0x9e3779b9 ^ (seed | 0);
    this.#b = 0x243f6a88 ^ Math.floor(seed / 0x1_0000_0000);
    this.#c = 0xb7e15162 ^ Math.imul(stream + 1, 0x85ebca6b);
    // The first outputs of neighbouring seeds resemble each other.
    for (let warmUp = 0; warmUp < 12; warmUp += 1) this.bits();
  }

  /** 32 random bits. */
  bits(): number {
    const sum = (((this.#a + this.#b) | 0) + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + sum;
    return sum >>> 0;
  }

  /** From 0 (included) to 1 (excluded). */
  unit(): number {
    return this.bits() / 0x1_0000_0000;
  }

  chance(probability: number): boolean {
    return probability > 0 && this.unit() < probability;
  }

  /** A whole number, both ends included. */
  between(low: number, high: number): number {
    return low + Math.floor(this.unit() * (high - low + 1));
  }

  pick<T>(from: readonly T[]): T {
    const picked = from[Math.floor(this.unit() * from.length)];
    if (picked === undefined) throw new Error("There is nothing to pick from.");
    return picked;
  }

  /** Mostly short, sometimes much longer: the distribution of gaps between independent events. */
  exponential(mean: number): number {
    return Math.ceil(-Math.log(1 - this.unit()) * mean);
  }

  hex(bytes: number): string {
    let text = "";
    while (text.length < bytes * 2) text += this.bits().toString(16).padStart(8, "0");
    return text.slice(0, bytes * 2);
  }
}
