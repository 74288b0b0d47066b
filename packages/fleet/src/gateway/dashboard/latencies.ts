/** How long things took: a count, and the last ones for percentiles. */

/** Enough for a 95th percentile. */
const LAST_MAX = 256;

export interface Percentiles {
  readonly count: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
}

export class Latencies {
  #count = 0;
  readonly #last: number[] = [];

  add(durationMs: number): void {
    this.#last[this.#count % LAST_MAX] = durationMs;
    this.#count += 1;
  }

  read(): Percentiles {
    const sorted = [...this.#last].sort((a, b) => a - b);
    const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
    return { count: this.#count, p50Ms: at(0.5), p95Ms: at(0.95) };
  }
}

/** Of two times: the sum of the counts, the worse of each percentile. */
export function worse(a: Percentiles | undefined, b: Percentiles): Percentiles {
  if (a === undefined) return b;
  return { count: a.count + b.count, p50Ms: Math.max(a.p50Ms, b.p50Ms), p95Ms: Math.max(a.p95Ms, b.p95Ms) };
}
