/** The interface of a suite for `bench/main.ts`: it yields its results one by one. */

import type { Result } from "../measuring/result.ts";

export interface SuiteOptions {
  /** Fewer rounds, for a quick check. The ratios are the same, only less certain. */
  readonly quick: boolean;
  /** These parts, in a suite that has any. */
  readonly only?: readonly string[];
  /** How long a suite watches what goes on, where it does. */
  readonly minutes: number;
}

export interface Suite {
  /** What is measured, and what is not, in a few lines for the reader of the figures. */
  readonly about: string;
  /** What can be measured by itself. */
  readonly parts?: readonly string[];
  run(options: SuiteOptions): AsyncIterable<Result>;
}
