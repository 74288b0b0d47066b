/** The `kubernetes` backend passes the suite of every backend on a real cluster, with workspaces that end with their pod. */

import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { searchDeviations } from "../../backends/local/search-deviations.ts";
import { clusterTools } from "./cluster-tools.ts";
import { blueprint, openHarness } from "./kubernetes-harness.ts";

describeBackend({
  name: "kubernetes",
  tools: clusterTools(),
  blueprint,
  open: () => openHarness(),
  deviations: searchDeviations,
});
