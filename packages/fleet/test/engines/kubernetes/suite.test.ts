/**
 * The `kubernetes` backend passes the suite of every backend on a real cluster: with workspaces on a claim that all pods
 * share, without lasting workspaces, and through the API server instead of pod addresses.
 */

import { describeBackend } from "../../../src/testing/backend-suite.ts";
import { searchDeviations } from "../../backends/local/search-deviations.ts";
import { deviationsIn } from "../../backends/suite-groups.ts";
import { clusterTools } from "./cluster-tools.ts";
import { blueprint, lookUp, openHarness, sharedClaim, threadClaims } from "./kubernetes-harness.ts";
import { withoutBlanks } from "./without-blanks.ts";
import { withoutWorkspaces } from "./without-workspaces.ts";

const isSmall = process.env.SANDLOT_TEST_CLUSTER_SIZE === "small";
/**
 * The groups that each way of working can change. `npm run test:long` runs all of them; `npm run test:engines` those that
 * nothing else covers.
 */
const SHARED = isSmall
  ? ["lifecycle", "workspaces"]
  : ["lifecycle", "attaching", "liveness", "activity", "workspaces", "terminals"];
const NONE = isSmall ? ["liveness", "watching"] : ["workspaces", "ports", "watching"];
const FORWARDED = isSmall ? ["attaching"] : ["attaching", "file streams"];
const CLAIMS = isSmall ? ["workspaces"] : ["lifecycle", "workspaces"];
const GVISOR = ["lifecycle", "terminals"];

const NO_GVISOR =
  (await lookUp((api, signal) => api.get("runtimeclasses", "gvisor", signal))) === null
    ? "the cluster has no RuntimeClass gvisor: tests/cluster/build.sh addons"
    : null;

describeBackend({
  name: "kubernetes with a shared claim",
  tools: clusterTools(SHARED),
  blueprint,
  open: () => openHarness({ workspaces: sharedClaim }),
  deviations: deviationsIn(SHARED, searchDeviations),
});

describeBackend({
  name: "kubernetes without workspaces",
  tools: clusterTools(NONE),
  blueprint,
  open: () => openHarness(),
  deviations: deviationsIn(NONE, { ...searchDeviations, ...withoutWorkspaces }),
});

describeBackend({
  name: "kubernetes through the API server",
  tools: clusterTools(FORWARDED),
  blueprint,
  open: () => openHarness({ different: { connect: "port-forward" } }),
  deviations: deviationsIn(FORWARDED, { ...searchDeviations, ...withoutWorkspaces }),
});

describeBackend({
  name: "kubernetes with a claim for each thread",
  tools: clusterTools(CLAIMS),
  blueprint,
  open: () => openHarness({ workspaces: threadClaims }),
  deviations: deviationsIn(CLAIMS, { ...searchDeviations, ...withoutBlanks }),
});

// Its addon is not part of the small size.
if (!isSmall)
  describeBackend({
    name: "kubernetes with gVisor",
    tools: clusterTools(GVISOR, NO_GVISOR),
    blueprint,
    open: () => openHarness({ different: { runtimeClass: "gvisor" } }),
    deviations: deviationsIn(GVISOR, { ...searchDeviations, ...withoutWorkspaces }),
  });
