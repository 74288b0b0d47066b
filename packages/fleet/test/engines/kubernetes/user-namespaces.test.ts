/**
 * Accounts of pods apart from those of their node. Whether a cluster can do that is its own matter: the trial says it, sandboxes
 * are made accordingly, and `require` insists. The runtime of `tests/cluster` has none; a newer one is tried by the same tests.
 */

import { isSandlotError } from "@sandlot/contract";
import { expect } from "vitest";
import { kubernetesFindings } from "../../../src/backends/kubernetes/doctor.ts";
import { tryUserNamespaces } from "../../../src/backends/kubernetes/trial/user-namespaces.ts";
import { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { onCluster } from "./cluster-tools.ts";
import { blueprint, openHarness, sharedClaim, threadClaims } from "./kubernetes-harness.ts";

const NEVER = new AbortController().signal;
/** The first account inside is the node's own. */
const OF_THE_NODE = /^\s*0\s+0\s/;

const WORKSPACES = { none: undefined, claim: sharedClaim, "per-thread": threadClaims } as const;

for (const mode of ["none", "per-thread"] as const)
  onCluster(`with ${mode} workspaces sandboxes have the accounts that the trial found`, null, async () => {
    const harness = await openHarness({
      tries: true,
      ...(WORKSPACES[mode] !== undefined && { workspaces: WORKSPACES[mode] }),
    });
    const stage = new BackendStage(harness, blueprint, expect);
    try {
      const context = { api: harness.api, world: systemWorld(), settings: harness.settings() };
      const problem = await tryUserNamespaces(context, null, NEVER);
      const sandbox = await stage.sandbox();
      const map = (await sandbox.exec("cat /proc/self/uid_map")).stdout;
      expect([problem, OF_THE_NODE.test(map)]).toEqual([problem, problem !== null]);
      // The trial removes its pods.
      const trials = await harness.api.list("pods", { labelSelector: "sandlot.dev/trial" }, NEVER);
      expect(trials.items.filter(({ metadata }) => typeof metadata.deletionTimestamp !== "string")).toEqual([]);
      await stage.clear();
    } finally {
      await harness.dispose();
    }
  });

onCluster("what is required and not there is refused, and doctor says why", null, async () => {
  const harness = await openHarness({ workspaces: sharedClaim });
  try {
    const backend = await harness.open({ userNamespaces: "require" }, { tries: true });
    const stage = new BackendStage({ ...harness, backend }, blueprint, expect);
    const outcome = await stage.make().then(
      () => "made",
      (error: unknown) => error,
    );
    const findings = await kubernetesFindings(harness.settings({ userNamespaces: "require" }));
    const finding = findings.find(({ name }) => name === "user namespaces");
    if (outcome === "made") expect(finding?.status).toBe("ok");
    else {
      if (!isSandlotError(outcome, "isolation_unavailable")) throw outcome;
      expect(outcome.details.fix).toContain("kubernetes.userNamespaces");
      expect(finding).toMatchObject({ status: "fail", detail: expect.stringMatching(/user namespace|hostUsers/i) });
    }
    await stage.clear();
  } finally {
    await harness.dispose();
  }
});
