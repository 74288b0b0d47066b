/**
 * The `docker` backend means what every backend means, on a real engine.
 */

import { afterAll, it } from "vitest";
import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { searchDeviations } from "../local/search-deviations.ts";
import { blueprint, openHarness, removeDaemon, STOPPING_MS, testEngine } from "./docker-harness.ts";
import { suiteTools } from "./suite-tools.ts";

const engine = await testEngine();

if ("reason" in engine) it.skip(`the docker backend (${engine.reason})`, () => {});
else {
  afterAll(async () => {
    await removeDaemon();
    await engine.release();
  }, STOPPING_MS);

  describeBackend({
    name: "docker",
    tools: suiteTools(),
    blueprint,
    open: () => openHarness(engine),
    // The image has ripgrep, as this machine has.
    deviations: searchDeviations,
  });
}
