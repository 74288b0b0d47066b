/** DeerFlow's summary of rows: counts, warm hits, and percentiles of each part. */

import type { Row } from "./turn.ts";

export interface ScenarioSummary {
  readonly count: number;
  readonly ok: number;
  readonly errors: number;
  /** `null` when it is unknown for every turn. */
  readonly warmHitRate: number | null;
  readonly figures: readonly string[];
}

export function summaryOf(rows: readonly Row[]): ScenarioSummary {
  const ok = rows.filter(({ success }) => success);
  const known = ok.filter(({ warm_hit }) => warm_hit !== null);
  const hits = known.filter(({ warm_hit }) => warm_hit === true).length;
  const part = (name: string, values: readonly number[]) =>
    `${name.padEnd(8)} p50 ${show(values, 0.5)}   p95 ${show(values, 0.95)}   p99 ${show(values, 0.99)}   mean ${mean(values).toFixed(2)} ms`;
  return {
    count: rows.length,
    ok: ok.length,
    errors: rows.length - ok.length,
    warmHitRate: known.length === 0 ? null : hits / known.length,
    figures:
      ok.length === 0
        ? []
        : [
            part(
              "acquire",
              ok.map((row) => row.acquire_ms),
            ),
            part(
              "run",
              ok.map((row) => row.run_ms),
            ),
            part(
              "release",
              ok.map((row) => row.release_ms),
            ),
            part(
              "total",
              ok.map((row) => row.total_ms),
            ),
          ],
  };
}

function show(values: readonly number[], share: number): string {
  const sorted = values.toSorted((a, b) => a - b);
  const at = Math.min(sorted.length - 1, Math.floor(sorted.length * share));
  return `${(sorted[at] ?? Number.NaN).toFixed(2)} ms`;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
