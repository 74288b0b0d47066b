/**
 * The `local` backend means what every backend means: as root's fleet and, started again as an ordinary user, as theirs.
 */

import { afterAll, describe, expect, it } from "vitest";
import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { blueprint, isRoot, openHarness, removeDaemon } from "./local-harness.ts";
import { searchDeviations } from "./search-deviations.ts";

afterAll(removeDaemon);

describeBackend({
  name: `local, bubblewrap, ${isRoot ? "root's fleet" : "an ordinary user's fleet"}`,
  tools: { describe, it, expect },
  blueprint,
  open: () => openHarness(),
  deviations: searchDeviations,
});
