/**
 * Isolation of the network on a real cluster: the backend installs its policies, refuses a cluster where they do not hold, and
 * sandboxes reach nothing that they must not. A listener with the label of egress proxies is the canary; every refusal has a
 * control that gets through.
 */

import { isSandlotError, type SandlotError } from "@sandlot/contract";
import { expect } from "vitest";
import type { KubernetesConfig } from "../../../src/backends/kubernetes/config.ts";
import { BackendStage } from "../../../src/testing/backend-suite/stage.ts";
import { listenerPod, removePod } from "./cluster-pods.ts";
import { onCluster } from "./cluster-tools.ts";
import { blueprint, openHarness } from "./kubernetes-harness.ts";

type Harness = Awaited<ReturnType<typeof openHarness>>;

const CANARY = 3_130;
const NEVER = new AbortController().signal;
const REACH = (host: string, port: number) =>
  `/opt/sandlot/d -e 'const s=require("net").connect({host:"${host}",port:${port}});setTimeout(()=>{console.log("cut");process.exit()},1500);s.on("connect",()=>{console.log("reached");process.exit()});s.on("error",()=>{console.log("cut");process.exit()})'`;

interface NodeObject {
  readonly status: { readonly addresses?: readonly { readonly type: string; readonly address: string }[] };
}

interface Ground {
  readonly harness: Harness;
  readonly stage: BackendStage;
  readonly canary: string;
}

/** A namespace with a canary, and a backend that enforces. */
function onGround(name: string, different: Partial<KubernetesConfig>, run: (ground: Ground) => Promise<void>): void {
  onCluster(name, null, async () => {
    const harness = await openHarness();
    let stage: BackendStage | null = null;
    try {
      const canary = (await listenerPod(harness.api, "egress", "egress", [CANARY])).status.podIP;
      const egress = { host: canary, port: 3_129, canaryPort: CANARY };
      const backend = await harness.open({ networkPolicy: "enforce", egress, ...different }, { tries: true });
      stage = new BackendStage({ ...harness, backend }, blueprint, expect);
      await run({ harness, stage, canary });
    } finally {
      await stage?.clear();
      await removePod(harness.api, "egress");
      await removePod(harness.api, "other");
      await harness.dispose();
    }
  });
}

async function failureOf(promise: Promise<unknown>): Promise<SandlotError> {
  const error = await promise.then(
    () => null,
    (one: unknown) => one,
  );
  if (!isSandlotError(error)) throw new Error(`no typed error: ${error}`);
  return error;
}

async function policyNames({ api }: Harness): Promise<readonly string[]> {
  return (await api.list("networkpolicies", {}, NEVER)).items.map(({ metadata }) => metadata.name).sort();
}

onGround(
  "policies are installed, and a sandbox reaches nothing but answers its gateway",
  {},
  async ({ harness, stage, canary }) => {
    expect(await policyNames(harness)).toEqual([]);
    const made = await stage.make();
    expect(await policyNames(harness)).toEqual(["sandlot-allowlist", "sandlot-none", "sandlot-open"]);
    // The trial removes its pods.
    const trials = await harness.api.list("pods", { labelSelector: "sandlot.dev/trial" }, NEVER);
    expect(trials.items.filter(({ metadata }) => typeof metadata.deletionTimestamp !== "string")).toEqual([]);
    const { sandbox } = await stage.attach(made.target);
    const other = (await listenerPod(harness.api, "other", "gateway", [7_411])).status.podIP;
    const inside = async (host: string, port: number) => (await sandbox.exec(REACH(host, port))).stdout.trim();
    for (const [host, port] of [
      [canary, CANARY],
      [other, 7_411],
      ["169.254.169.254", 80],
    ] as const)
      expect([host, await inside(host, port)]).toEqual([host, "cut"]);
    // The controls: the probe works, and both listeners are there.
    await sandbox.exec("/opt/sandlot/d -e 'require(\"net\").createServer().listen(8080)' > /dev/null 2>&1 & sleep 1");
    expect(await inside("127.0.0.1", 8_080)).toBe("reached");
    const { connect } = await import("node:net");
    for (const [host, port] of [
      [canary, CANARY],
      [other, 7_411],
    ] as const)
      await new Promise<void>((resolve, reject) => {
        const socket = connect({ host, port }, () => resolve(void socket.destroy())).on("error", reject);
      });
    expect((await sandbox.exec("cat /etc/resolv.conf")).stdout).toContain("nameserver 127.0.0.1");
  },
);

onGround(
  "a cluster where policies do not hold makes no sandbox, and says what was reached",
  {},
  async ({ harness, stage, canary }) => {
    // Something else made it, so it is left alone; it selects no pod, as if nothing enforced it.
    const spec = { podSelector: { matchLabels: { nothing: "here" } }, policyTypes: ["Egress"] };
    const policy = {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: "sandlot-none" },
      spec,
    };
    await harness.api.create("networkpolicies", policy, NEVER);
    const error = await failureOf(stage.make());
    expect(error.code).toBe("isolation_unavailable");
    expect(error.message).toContain(`the canary (${canary}:${CANARY})`);
    expect(error.message).toContain("a pod of a gateway");
    // At once, without another trial.
    const startedAt = Date.now();
    expect((await failureOf(stage.make())).code).toBe("isolation_unavailable");
    expect(Date.now() - startedAt).toBeLessThan(5_000);
    const pods = await harness.api.list("pods", { labelSelector: "sandlot.dev/sandbox" }, NEVER);
    expect(pods.items).toEqual([]);
  },
);

onGround("a cluster that lets sandboxes reach each other is refused", {}, async ({ harness, stage }) => {
  const spec = {
    podSelector: { matchLabels: { "sandlot.dev/role": "sandbox" } },
    policyTypes: ["Ingress", "Egress"],
    ingress: [{}],
    egress: [{ to: [{ podSelector: { matchLabels: { "sandlot.dev/role": "sandbox" } } }] }],
  };
  const policy = {
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: { name: "sandlot-none" },
    spec,
  };
  await harness.api.create("networkpolicies", policy, NEVER);
  const error = await failureOf(stage.make());
  expect(error.code).toBe("isolation_unavailable");
  expect(error.message).toMatch(/reached another sandbox \([\d.]+:7412\)/);
});

onGround(
  "ports of the own node are refused where the operator insists",
  { ownNode: "refuse" },
  async ({ harness, stage }) => {
    // The standard lets a pod reach its own node always. This cluster's controller does not, so a policy says it.
    const nodes = (await harness.api.list("nodes", {}, NEVER)).items as unknown as NodeObject[];
    const known = nodes.flatMap(({ status }) => status.addresses ?? []);
    // Other tests have nodes without a machine.
    const address = known.find(({ type }) => type === "InternalIP")?.address ?? "";
    const spec = {
      podSelector: { matchLabels: { "sandlot.dev/role": "sandbox" } },
      policyTypes: ["Egress"],
      egress: [{ to: [{ ipBlock: { cidr: `${address}/32` } }] }],
    };
    const policy = {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: "sandlot-none" },
      spec,
    };
    await harness.api.create("networkpolicies", policy, NEVER);
    const error = await failureOf(stage.make());
    expect(error.code).toBe("isolation_unavailable");
    expect(error.message).toContain(`reaches its own node: ${address}:10250`);
  },
);

onGround("a canary that does not answer proves nothing, so nothing is made", {}, async ({ harness, stage }) => {
  await removePod(harness.api, "egress");
  const error = await failureOf(stage.make());
  expect(error.code).toBe("engine_unavailable");
  expect(error.message).toContain("canary");
  expect(error.retryable).toBe(true);
});

onGround("a policy of ours that was changed is mended", {}, async ({ harness, stage }) => {
  await stage.make();
  const [name] = await policyNames(harness);
  const steps = [{ op: "replace", path: "/spec/ingress", value: [{}] }] as const;
  await harness.api.patch("networkpolicies", name ?? "", steps, NEVER);
  const peer = await harness.open(
    { networkPolicy: "enforce", egress: { host: await canaryOf(harness), port: 3_129, canaryPort: CANARY } },
    { tries: true },
  );
  const second = new BackendStage({ ...harness, backend: peer }, blueprint, expect);
  await second.make();
  await second.clear();
  const found = await harness.api.get("networkpolicies", name ?? "", NEVER);
  expect(JSON.stringify((found as unknown as { spec: unknown }).spec)).toContain("7411");
});

async function canaryOf({ api }: Harness): Promise<string> {
  const found = await api.get("pods", "egress", NEVER);
  return (found as unknown as { status: { podIP: string } }).status.podIP;
}

onCluster("without egress proxies the mode `enforce` is refused at once, with what to do", null, async () => {
  const harness = await openHarness();
  try {
    const error = await failureOf(harness.open({ networkPolicy: "enforce" }));
    expect([error.code, error.message]).toEqual([
      "config_invalid",
      expect.stringContaining("networkPolicy to external"),
    ]);
  } finally {
    await harness.dispose();
  }
});
