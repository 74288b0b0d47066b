/** What `bench/main.ts` runs: a suite gives its results one by one, as they are known. */

import type { Result } from "../measuring/result.ts";

export interface SuiteOptions {
  /** Fewer rounds, for a look while working. The ratios are the same, only less certain. */
  readonly quick: boolean;
}

export interface Suite {
  /** What is measured, and what is not, in a few lines for whoever reads the figures. */
  readonly about: string;
  run(options: SuiteOptions): AsyncIterable<Result>;
}
