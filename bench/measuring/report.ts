/** Prints results: on the terminal, and as one JSON line each. */

import { isMissed, type Result } from "./result.ts";

export function describe(result: Result): string {
  const { name, ratio, ratioOfMedians, limit, unit, sides, spread, about } = result;
  const verdict = limit === null ? "no limit" : `limit ${limit}  ${isMissed(result) ? "MISSED" : "ok"}`;
  const wide = Math.max(...sides.map((side) => side.name.length));
  const rows = sides.map((side) => {
    const { p50, p99, mean } = side.summary;
    const figures = [["p50", p50] as const, ["p99", p99] as const, ["mean", mean] as const];
    return `    ${side.name.padEnd(wide)}  ${figures.map(([label, value]) => `${label} ${show(value, unit)}`).join("   ")}`;
  });
  return [
    `${name}: ratio ${showRatio(ratio)}  (${verdict})`,
    `    rounds' ratios: half between ${showRatio(spread.p25)} and ${showRatio(spread.p75)}, p99 ${showRatio(spread.p99)}; ratio of medians ${showRatio(ratioOfMedians)}`,
    ...rows,
    `    ${about}`,
  ].join("\n");
}

export function jsonLine(result: Result): string {
  const { name, ratio, limit, samples, unit, spread, ratioOfMedians, sides, about } = result;
  const percentiles = Object.fromEntries(sides.map((side) => [side.name, side.summary]));
  return `${JSON.stringify({ name, ratio, limit, samples, unit, spread, ratioOfMedians, percentiles, about })}\n`;
}

/** For small ratios two decimals would be one significant digit. */
function showRatio(ratio: number): string {
  return ratio > 0 && ratio < 0.1 ? ratio.toPrecision(3) : ratio.toFixed(2);
}

function show(value: number, unit: Result["unit"]): string {
  if (unit === "bytes") return `${Math.round(value).toLocaleString("en")} bytes`;
  if (unit === "calls") return `${value.toFixed(2)} calls`;
  return value >= 1_000 ? `${(value / 1_000).toFixed(2)} µs` : `${value.toFixed(0)} ns`;
}
