/** The `docker` backend passes the suite of every backend, on a real engine. */

import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { searchDeviations } from "../local/search-deviations.ts";
import { blueprint, openHarness, testEngine } from "./docker-harness.ts";
import { suiteTools } from "./suite-tools.ts";
import { usingEngine } from "./using-engine.ts";

usingEngine("the docker backend", await testEngine(), (engine) => {
  describeBackend({
    name: "docker",
    tools: suiteTools(),
    blueprint,
    open: () => openHarness(engine),
    // The image has ripgrep, as this machine has.
    deviations: searchDeviations,
  });
});
