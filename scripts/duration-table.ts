/** Where the time of a run went: each step in its order with its share, and the slowest test files. */
import type { FileDuration } from "./vitest-summary.ts";

export interface StepResult {
  readonly name: string;
  readonly passed: number;
  readonly failed: number;
  readonly seconds: number;
  readonly slowest: readonly FileDuration[];
}

export function durationTable(results: readonly StepResult[]): readonly string[] {
  const total = results.reduce((sum, { seconds }) => sum + seconds, 0);
  const rows = results.map(({ name, passed, failed, seconds }) => {
    const share = total === 0 ? 0 : Math.round((100 * seconds) / total);
    const time = `${seconds.toFixed(1).padStart(7)} s ${String(share).padStart(3)} %`;
    return `${failed === 0 ? "ok    " : "FAILED"} ${name.padEnd(22)} ${time}   ${passed} passed, ${failed} failed`;
  });
  const files = results.flatMap(({ name, slowest }) =>
    slowest.map(({ path, seconds }) => `       ${seconds.toFixed(1).padStart(7)} s ${path} (${name})`),
  );
  const sum = `total  ${"".padEnd(22)} ${total.toFixed(1).padStart(7)} s`;
  return [...rows, sum, ...(files.length === 0 ? [] : ["the slowest test files:", ...files])];
}
