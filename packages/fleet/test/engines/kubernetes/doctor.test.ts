/** `sandlot doctor` against a real cluster: what is there and what is missing, each with what to do. */

import { expect } from "vitest";
import type { Finding } from "../../../src/backend/doctor/finding.ts";
import { kubernetesFindings } from "../../../src/backends/kubernetes/doctor.ts";
import { listenerPod, removePod } from "./cluster-pods.ts";
import { onCluster } from "./cluster-tools.ts";
import { limitedAccount, openHarness, sharedClaim } from "./kubernetes-harness.ts";

const NEVER = new AbortController().signal;
const CANARY = 3_130;

function named(findings: readonly Finding[], name: string): Finding {
  const found = findings.find((finding) => finding.name === name);
  if (found === undefined) throw new Error(`no finding ${name} in ${findings.map((one) => one.name).join(", ")}`);
  return found;
}

onCluster("a cluster with everything is ready, and pods have shown it", null, async () => {
  const harness = await openHarness({ workspaces: sharedClaim });
  try {
    const canary = (await listenerPod(harness.api, "egress", "egress", [CANARY])).status.podIP;
    const egress = { host: canary, port: 3_129, canaryPort: CANARY };
    const backend = await harness.open({ networkPolicy: "enforce", egress }, { tries: true });
    await backend.close();
    const quota = {
      apiVersion: "v1",
      kind: "ResourceQuota",
      metadata: { name: "small" },
      spec: { hard: { pods: "20" } },
    };
    await harness.api.create("resourcequotas", quota, NEVER);
    const settings = harness.settings({ networkPolicy: "enforce", egress, runtimeClass: null });
    const before = await kubernetesFindings(settings);
    expect(before.filter(({ status }) => status === "fail")).toEqual([]);
    expect(named(before, "network policies")).toMatchObject({
      status: "warn",
      detail: expect.stringContaining("installs"),
    });
    await harness.installPolicies(egress);
    const findings = await kubernetesFindings(settings);
    expect(findings.filter(({ status }) => status === "fail")).toEqual([]);
    for (const name of ["cluster", "permissions", "pod security", "network policies", "network isolation"])
      expect(named(findings, name).status).toBe("ok");
    for (const step of ["rename", "visibility", "full-directory", "inodes", "uid"])
      expect(named(findings, `volume: ${step}`).status).toBe("ok");
    expect(named(findings, "image localhost/sandlot-test:1").status).toBe("ok");
    expect(named(findings, "quota small").detail).toContain("of 20");
  } finally {
    await removePod(harness.api, "egress");
    await harness.dispose();
  }
});

onCluster("what is missing is named, with what to do", null, async () => {
  const harness = await openHarness();
  try {
    const image = "localhost/absent:1";
    const started = await kubernetesFindings(
      harness.settings({ image, imagePullPolicy: "IfNotPresent", readyTimeoutMs: 10_000 }),
    );
    expect(named(started, `image ${image}`)).toMatchObject({
      status: "fail",
      detail: expect.stringContaining(image),
      fix: expect.stringContaining("imagePullSecrets"),
    });
    const settings = harness.settings({
      runtimeClass: "absent",
      workspaces: { mode: "claim", claim: "absent", root: "/nowhere", sizeBytes: 0 },
    });
    const findings = await kubernetesFindings(settings);
    expect(named(findings, "runtime class")).toMatchObject({ status: "fail", detail: "absent is not there" });
    expect(named(findings, "claim absent")).toMatchObject({ status: "fail", detail: "absent" });
    expect(named(findings, "network policies")).toMatchObject({ status: "warn", fix: expect.any(String) });
  } finally {
    await harness.dispose();
  }
});

onCluster("an account without rights is told the rules that it lacks, and no pod is made", null, async () => {
  const harness = await openHarness();
  try {
    const kubeconfig = await limitedAccount(harness.api);
    const findings = await kubernetesFindings(harness.settings({ kubeconfig }));
    const permissions = named(findings, "permissions");
    expect(permissions.status).toBe("fail");
    expect(permissions.fix).toContain('resources: ["pods"]\n  verbs: ["create"]');
    expect(permissions.fix).toContain('resources: ["secrets"]\n  verbs: ["patch"]');
    expect(named(findings, "nodes")).toMatchObject({ status: "warn", fix: expect.stringContaining('["nodes"]') });
    expect((await harness.api.list("pods", {}, NEVER)).items).toEqual([]);
  } finally {
    await harness.dispose();
  }
});
