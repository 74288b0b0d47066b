/** Order statistics. They are robust on a noisy machine: one stalled batch moves a mean, not a median. */

export interface Summary {
  readonly p25: number;
  readonly p50: number;
  readonly p75: number;
  readonly p99: number;
  readonly mean: number;
}

export function summarize(samples: readonly number[]): Summary {
  if (samples.length === 0) throw new Error("There is nothing to summarize.");
  const sorted = Float64Array.from(samples).sort();
  const mean = sorted.reduce((sum, sample) => sum + sample, 0) / sorted.length;
  return {
    p25: quantile(sorted, 0.25),
    p50: quantile(sorted, 0.5),
    p75: quantile(sorted, 0.75),
    p99: quantile(sorted, 0.99),
    mean,
  };
}

export function median(samples: readonly number[]): number {
  return summarize(samples).p50;
}

/** Interpolated between the two nearest samples. */
function quantile(sorted: Float64Array, share: number): number {
  const at = (sorted.length - 1) * share;
  const below = sorted[Math.floor(at)] ?? Number.NaN;
  const above = sorted[Math.ceil(at)] ?? Number.NaN;
  return below + (above - below) * (at - Math.floor(at));
}
