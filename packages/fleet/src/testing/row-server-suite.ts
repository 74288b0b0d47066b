/**
 * Defines `store/rows/row-server.ts` as tests: one suite that every row server passes, with its real database.
 *
 *   import { describe, expect, it } from "vitest";
 *   describeRowServer({ name: "postgres", tools: { describe, it, expect }, open: async () => harness });
 *
 * The test framework is a parameter, as in `store-suite.ts`. Every case gets an empty database, or a part of one that
 * no other case uses.
 */

import { committingCases } from "./row-server-suite/committing.ts";
import { concurrencyCases } from "./row-server-suite/concurrency.ts";
import { epochCases } from "./row-server-suite/epochs.ts";
import { identifierCases } from "./row-server-suite/identifiers.ts";
import { joiningCases } from "./row-server-suite/joining.ts";
import { scanningCases } from "./row-server-suite/scanning.ts";
import { sizeCases } from "./row-server-suite/sizes.ts";
import { type RowServerCase, type RowServerHarness, RowStage } from "./row-server-suite/stage.ts";
import { topicCases } from "./row-server-suite/topics.ts";
import { troubleCases } from "./row-server-suite/trouble.ts";
import type { SuiteTools } from "./store-suite/stage.ts";

export type { RowServerHarness } from "./row-server-suite/stage.ts";

export interface RowServerSuiteOptions {
  readonly name: string;
  readonly tools: SuiteTools;
  open(): Promise<RowServerHarness>;
}

const GROUPS: Readonly<Record<string, readonly RowServerCase[]>> = {
  committing: committingCases,
  "ids, seen and notAfter": identifierCases,
  concurrency: concurrencyCases,
  "many at once": joiningCases,
  scanning: scanningCases,
  epochs: epochCases,
  topics: topicCases,
  sizes: sizeCases,
  trouble: troubleCases,
};

export function describeRowServer({ name, tools, open }: RowServerSuiteOptions): void {
  const { describe, it, expect } = tools;
  describe(`row server ${name}`, () => {
    for (const [group, cases] of Object.entries(GROUPS)) {
      describe(group, () => {
        for (const one of cases) {
          it(one.name, async () => {
            const harness = await open();
            try {
              await one.run(await RowStage.begin(harness, expect));
            } finally {
              await harness.dispose();
            }
          });
        }
      });
    }
  });
}
