/** Tests that need the engine: they run on it, or are skipped with the reason why there is none. */

import { describe } from "vitest";
import type { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import { type DockerHarness, onStage, type StageOptions, type TestEngine, testEngine } from "./docker-harness.ts";
import { usingEngine } from "./using-engine.ts";

export type OnStage = (
  run: (stage: BackendStage, harness: DockerHarness) => Promise<void>,
  options?: StageOptions,
) => Promise<void>;

const engine = await testEngine();

export function describeOnEngine(name: string, body: (onEngine: OnStage, engine: TestEngine) => void): void {
  usingEngine(name, engine, (present) =>
    describe(name, () => body((run, options) => onStage(present, run, options), present)),
  );
}
