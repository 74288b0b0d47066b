/**
 * Defines `backend/backend.ts` and `Sandbox` as tests: one suite that every backend passes, with its real engine.
 *
 *   import { describe, expect, it } from "vitest";
 *   describeBackend({ name: "memory", tools: { describe, it, expect }, blueprint, open: async () => ({ … }) });
 *
 * The test framework is a parameter, so that `sandlot/testing` depends on none. Every case gets a fresh engine home,
 * and fails when it leaves anything in the engine. Commands in the cases are plain POSIX sh.
 *
 * A deviation names a case (`group: case`), says why the backend differs, and tests the actual behaviour. A deviation
 * that names no case fails.
 */

import type { Blueprint } from "../backend/blueprint.ts";
import { activityCases } from "./backend-suite/activity.ts";
import { attachingCases } from "./backend-suite/attaching.ts";
import { checkpointCases } from "./backend-suite/checkpoints.ts";
import { execCases } from "./backend-suite/exec.ts";
import { execEndingCases } from "./backend-suite/exec-ending.ts";
import { fileSearchCases } from "./backend-suite/file-search.ts";
import { fileStreamCases } from "./backend-suite/file-streams.ts";
import { fileCases } from "./backend-suite/files.ts";
import { freezingCases } from "./backend-suite/freezing.ts";
import { homeCases } from "./backend-suite/home.ts";
import { lifecycleCases } from "./backend-suite/lifecycle.ts";
import { livenessCases } from "./backend-suite/liveness.ts";
import { portCases } from "./backend-suite/ports.ts";
import { sessionCases } from "./backend-suite/sessions.ts";
import { spawningCases } from "./backend-suite/spawning.ts";
import { type BackendCase, type BackendHarness, BackendStage } from "./backend-suite/stage.ts";
import { terminalCases } from "./backend-suite/terminals.ts";
import { watchingCases } from "./backend-suite/watching.ts";
import { workspaceCases } from "./backend-suite/workspaces.ts";
import type { SuiteTools } from "./store-suite/stage.ts";

export type { BackendHarness, BackendStage } from "./backend-suite/stage.ts";

export interface BackendSuiteOptions {
  readonly name: string;
  readonly tools: SuiteTools;
  /** The blueprint of the suite's sandboxes. */
  readonly blueprint: Blueprint;
  /** A backend on an empty engine, or in an empty part of one. */
  open(): Promise<BackendHarness>;
  /** By `group: case`. A text alone says why the case does not apply to this backend at all. */
  readonly deviations?: Readonly<Record<string, BackendDeviation | string>>;
}

export interface BackendDeviation {
  readonly reason: string;
  /** Tests the actual behaviour. */
  instead(stage: BackendStage): Promise<void>;
}

const GROUPS: Readonly<Record<string, readonly BackendCase[]>> = {
  lifecycle: lifecycleCases,
  attaching: attachingCases,
  workspaces: workspaceCases,
  home: homeCases,
  checkpoints: checkpointCases,
  freezing: freezingCases,
  liveness: livenessCases,
  activity: activityCases,
  exec: execCases,
  "exec ending": execEndingCases,
  files: fileCases,
  "file search": fileSearchCases,
  "file streams": fileStreamCases,
  spawning: spawningCases,
  sessions: sessionCases,
  terminals: terminalCases,
  watching: watchingCases,
  ports: portCases,
};

export function describeBackend(options: BackendSuiteOptions): void {
  const { name, tools, deviations = {} } = options;
  const { describe, it, expect } = tools;
  const unmatched = new Set(Object.keys(deviations));

  describe(`backend ${name}`, () => {
    for (const [group, cases] of Object.entries(GROUPS)) {
      describe(group, () => {
        for (const one of cases) {
          const key = `${group}: ${one.name}`;
          const deviation = deviations[key];
          unmatched.delete(key);
          if (deviation === undefined) it(one.name, () => onStage(options, one.run));
          else {
            const { reason, instead } =
              typeof deviation === "string" ? { reason: deviation, instead: async () => {} } : deviation;
            it(`${one.name} (deviates: ${reason})`, () => onStage(options, instead));
          }
        }
      });
    }
    it("has no deviation that names no case", async () => expect([...unmatched]).toEqual([]));
  });
}

async function onStage(
  { open, blueprint, tools }: BackendSuiteOptions,
  run: (stage: BackendStage) => Promise<void>,
): Promise<void> {
  const harness = await open();
  try {
    const stage = new BackendStage(harness, blueprint, tools.expect);
    try {
      await run(stage);
    } finally {
      await stage.clear();
    }
    // Only after a case that passed: a failed one should report its own error.
    tools.expect(await stage.leftovers(), "what the case left in the engine").toEqual([]);
  } finally {
    await harness.dispose();
  }
}
