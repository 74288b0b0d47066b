/**
 * The `local` backend passes the suite of every backend: as root's fleet and, restarted as an ordinary user, as theirs.
 */

import { afterAll, expect, it } from "vitest";
import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { describeGroups, deviationsIn } from "../suite-groups.ts";
import { blueprint, isRoot, openHarness, removeDaemon } from "./local-harness.ts";
import { searchDeviations } from "./search-deviations.ts";

/** Set by ordinary-user.test.ts, for which the others are the same. */
const groups = process.env.SANDLOT_TEST_GROUPS?.split(",");

afterAll(removeDaemon);

describeBackend({
  name: `local, bubblewrap, ${isRoot ? "root's fleet" : "an ordinary user's fleet"}`,
  tools: { describe: describeGroups(groups), it, expect },
  blueprint,
  open: () => openHarness(),
  deviations: groups === undefined ? searchDeviations : deviationsIn(groups, searchDeviations),
});
