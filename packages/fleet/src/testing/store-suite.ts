/**
 * Defines `store/store.ts` as tests: one suite that every store passes, with its real server or file.
 *
 *   import { describe, expect, it } from "vitest";
 *   describeStore({ name: "sqlite", tools: { describe, it, expect }, open: async () => ({ store, second, empty, dispose }) });
 *
 * The test framework is a parameter, so that `sandlot/testing` depends on none. Every case gets a fresh store.
 *
 * A deviation names a case, says why the store differs, and tests the actual behaviour. One that names no case fails.
 */

import { bindingCases } from "./store-suite/binding.ts";
import { concurrencyCases } from "./store-suite/concurrency.ts";
import { endingCases } from "./store-suite/ending.ts";
import { engineCases } from "./store-suite/engines.ts";
import { holdingCases } from "./store-suite/holding.ts";
import { makingCases } from "./store-suite/making.ts";
import { readingCases } from "./store-suite/reading.ts";
import { recoveryCases } from "./store-suite/recovery.ts";
import { remoteLeaseCases } from "./store-suite/remote-leases.ts";
import { sessionCases } from "./store-suite/sessions.ts";
import { Stage, type StoreCase, type StoreHarness, type SuiteTools } from "./store-suite/stage.ts";
import { takingCases } from "./store-suite/taking.ts";

export type { StoreHarness, SuiteTools } from "./store-suite/stage.ts";

export interface StoreSuiteOptions {
  readonly name: string;
  readonly tools: SuiteTools;
  /** A fresh, empty store that begins in recovery, as every store does. */
  open(): Promise<StoreHarness>;
  readonly deviations?: readonly StoreDeviation[];
}

export interface StoreDeviation {
  /** `group: case`, as the suite prints it. */
  readonly test: string;
  readonly reason: string;
  /** Tests the actual behaviour. */
  instead(stage: Stage): Promise<void>;
}

const GROUPS: Readonly<Record<string, readonly StoreCase[]>> = {
  sessions: sessionCases,
  reading: readingCases,
  making: makingCases,
  taking: takingCases,
  holding: holdingCases,
  binding: bindingCases,
  ending: endingCases,
  "remote leases": remoteLeaseCases,
  recovery: recoveryCases,
  engines: engineCases,
  concurrency: concurrencyCases,
};

export function describeStore(options: StoreSuiteOptions): void {
  const { name, tools, open, deviations = [] } = options;
  const { describe, it, expect } = tools;
  const unmatched = new Set(deviations.map(({ test }) => test));

  describe(`store ${name}`, () => {
    for (const [group, cases] of Object.entries(GROUPS)) {
      describe(group, () => {
        for (const one of cases) {
          const deviation = deviations.find(({ test }) => test === `${group}: ${one.name}`);
          if (deviation !== undefined) unmatched.delete(deviation.test);
          const title = deviation === undefined ? one.name : `${one.name} (deviates: ${deviation.reason})`;
          const run = deviation === undefined ? one.run : deviation.instead.bind(deviation);
          it(title, () => onStage(open, expect, one.begins ?? "open", run));
        }
      });
    }
    it("has no deviation that names no case", async () => expect([...unmatched]).toEqual([]));
  });
}

async function onStage(
  open: () => Promise<StoreHarness>,
  expect: SuiteTools["expect"],
  begins: "open" | "recovering",
  run: (stage: Stage) => Promise<void>,
): Promise<void> {
  const harness = await open();
  try {
    const stage = new Stage(harness, expect);
    if (begins === "open") await stage.endRecovery();
    await run(stage);
  } finally {
    await harness.dispose();
  }
}
