/** A result: one ratio, its limit, and all data it was computed from. */

import { ratios, type Timings } from "./interleave.ts";
import { median, type Summary, summarize } from "./statistics.ts";

export interface Side {
  readonly name: string;
  readonly summary: Summary;
}

export interface Result {
  readonly name: string;
  /** The median of the rounds' ratios, which the limit applies to. */
  readonly ratio: number;
  /** The ratio of the sides' medians over the whole run. If it is far from `ratio`, the machine was unsteady. */
  readonly ratioOfMedians: number;
  /** The maximum of `ratio`. `null`: for comparison only, never missed. */
  readonly limit: number | null;
  readonly unit: "ns" | "bytes" | "calls";
  readonly sides: readonly Side[];
  /** Of the rounds' ratios. */
  readonly spread: Summary;
  /** Raw, by side, in the unit above; `ratios` are the rounds' own. */
  readonly samples: Readonly<Record<string, readonly number[]>>;
  /** What was measured, and what was not. */
  readonly about: string;
}

export interface Naming {
  readonly name: string;
  readonly limit: number | null;
  readonly about: string;
}

/** Compares two sides that were measured together. */
export function compare(naming: Naming, ours: Timings, baseline: Timings): Result {
  const ofMedians = median(ours.samples) / median(baseline.samples);
  return resultOf(naming, "ns", [ours, baseline], ratios(ours, baseline), ofMedians);
}

/** For a ratio that is not simply one side over another. */
export function resultOf(
  { name, limit, about }: Naming,
  unit: Result["unit"],
  sides: readonly Pick<Timings, "name" | "samples">[],
  perRound: readonly number[],
  ratioOfMedians: number,
): Result {
  const spread = summarize(perRound);
  return {
    ...{ name, limit, about, unit, spread, ratioOfMedians },
    ratio: spread.p50,
    sides: sides.map((side) => ({ name: side.name, summary: summarize(side.samples) })),
    samples: { ...Object.fromEntries(sides.map((side) => [side.name, side.samples])), ratios: perRound },
  };
}

export function isMissed({ ratio, limit }: Result): boolean {
  // Not `>`: a ratio that is NaN has shown nothing, and must not pass.
  return limit !== null && !(ratio <= limit);
}
