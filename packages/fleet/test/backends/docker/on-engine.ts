/**
 * Tests that need the engine: they run on it, or are skipped with the reason why there is none.
 */

import { afterAll, describe, it } from "vitest";
import type { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import {
  type DockerHarness,
  onStage,
  removeDaemon,
  STOPPING_MS,
  type StageOptions,
  type TestEngine,
  testEngine,
} from "./docker-harness.ts";

export type OnStage = (
  run: (stage: BackendStage, harness: DockerHarness) => Promise<void>,
  options?: StageOptions,
) => Promise<void>;

const engine = await testEngine();

export function describeOnEngine(name: string, body: (onEngine: OnStage, engine: TestEngine) => void): void {
  if ("reason" in engine) {
    it.skip(`${name} (${engine.reason})`, () => {});
    return;
  }
  afterAll(async () => {
    await removeDaemon();
    await engine.release();
  }, STOPPING_MS);
  describe(name, () => body((run, options) => onStage(engine, run, options), engine));
}
