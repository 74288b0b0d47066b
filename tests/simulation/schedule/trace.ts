/**
 * The events of a run, in order. Every line goes into a hash, so that two runs of a seed can be compared without
 * keeping them; the lines themselves are kept only for `--trace`.
 */

export class Trace {
  readonly lines: string[] | null;
  readonly #now: () => number;
  #hash = 0x811c9dc5;

  constructor(now: () => number, keep: boolean) {
    this.#now = now;
    this.lines = keep ? [] : null;
  }

  /** `who` did `what`. `detail` is only computed when the lines are kept: it may be costly. */
  add(who: string, what: string, detail?: () => string): void {
    this.#mix(this.#now());
    for (let index = 0; index < who.length; index += 1) this.#mix(who.charCodeAt(index));
    for (let index = 0; index < what.length; index += 1) this.#mix(what.charCodeAt(index));
    if (this.lines === null) return;
    const at = (this.#now() / 1000).toFixed(3).padStart(9);
    this.lines.push(`${at}  ${who.padEnd(8)} ${what}${detail === undefined ? "" : `  ${detail()}`}`);
  }

  get hash(): string {
    return (this.#hash >>> 0).toString(16).padStart(8, "0");
  }

  #mix(value: number): void {
    this.#hash = Math.imul(this.#hash ^ (value & 0xffff), 0x01000193);
    this.#hash = Math.imul(this.#hash ^ (value >>> 16), 0x01000193);
  }
}
