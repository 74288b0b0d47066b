/**
 * The `kubernetes` backend passes the suite of every backend on a real cluster: with workspaces on a claim that all pods
 * share, without lasting workspaces, and through the API server instead of pod addresses.
 */

import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { searchDeviations } from "../../backends/local/search-deviations.ts";
import { clusterTools } from "./cluster-tools.ts";
import { blueprint, openHarness, sharedClaim } from "./kubernetes-harness.ts";
import { withoutWorkspaces } from "./without-workspaces.ts";

/** The groups that a cluster can change. `npm run test:long` runs all of them. */
const ENGINE = ["lifecycle", "attaching", "liveness", "activity"];

describeBackend({
  name: "kubernetes with a shared claim",
  tools: clusterTools([...ENGINE, "workspaces", "terminals"]),
  blueprint,
  open: () => openHarness({ workspaces: sharedClaim }),
  deviations: searchDeviations,
});

describeBackend({
  name: "kubernetes without workspaces",
  tools: clusterTools(["workspaces", "ports", "watching"]),
  blueprint,
  open: () => openHarness(),
  deviations: { ...searchDeviations, ...withoutWorkspaces },
});

describeBackend({
  name: "kubernetes through the API server",
  tools: clusterTools(["attaching", "file streams"]),
  blueprint,
  open: () => openHarness({ different: { connect: "port-forward" } }),
  deviations: { ...searchDeviations, ...withoutWorkspaces },
});
