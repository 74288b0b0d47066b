/** Pods and objects of tests beside sandboxes: listeners that stand for egress proxies, other policies, lost nodes. */

import { type ApiClient, openApi } from "../../../src/backends/kubernetes/api/client.ts";
import type { Pod } from "../../../src/backends/kubernetes/pod/pod.ts";
import { podOf } from "../../../src/backends/kubernetes/pod/pod.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { sleep } from "../../../src/world/waiting.ts";
import { CLUSTER, IMAGE } from "./kubernetes-harness.ts";

const world = systemWorld();
const NEVER = new AbortController().signal;
const RUNNING_MS = 60_000;

/** A pod that listens on these ports and answers nothing. It keeps to Pod Security `restricted`. */
export async function listenerPod(api: ApiClient, name: string, role: string, ports: readonly number[]): Promise<Pod> {
  const program = `for (const port of ${JSON.stringify(ports)}) require("node:net").createServer((s) => s.on("error", () => {})).listen(port)`;
  await api.create(
    "pods",
    {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, labels: { "sandlot.dev/role": role } },
      spec: {
        terminationGracePeriodSeconds: 0,
        automountServiceAccountToken: false,
        securityContext: { runAsNonRoot: true, runAsUser: 10_001, seccompProfile: { type: "RuntimeDefault" } },
        containers: [
          {
            name: "listener",
            image: IMAGE,
            imagePullPolicy: "Never",
            command: ["/opt/sandlot/d", "-e", program],
            securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
          },
        ],
      },
    },
    NEVER,
  );
  return running(api, name);
}

async function running(api: ApiClient, name: string): Promise<Pod> {
  const until = world.monotonicMs() + RUNNING_MS;
  for (;;) {
    const found = await api.get("pods", name, NEVER);
    const pod = found === null ? null : podOf(found);
    if (pod?.status.phase === "Running" && pod.status.podIP !== "") return pod;
    if (world.monotonicMs() > until) throw new Error(`pod ${name} does not run: ${pod?.status.phase}`);
    await sleep(world, 100);
  }
}

export async function removePod(api: ApiClient, name: string): Promise<void> {
  const found = await api.get("pods", name, NEVER);
  if (found !== null) await api.remove("pods", name, { uid: found.metadata.uid, gracePeriodSeconds: 0 }, NEVER);
}

/**
 * A Node object without a machine: what is scheduled there never starts, and no kubelet ever says that it ended. Returns what
 * removes it.
 */
export async function ghostNode(name: string): Promise<() => Promise<void>> {
  const admin = await openApi({ kubeconfig: CLUSTER, context: null, namespace: "default" }, world);
  const allocatable = { cpu: "4", memory: "8Gi", pods: "20", "ephemeral-storage": "20Gi" };
  await admin.create(
    "nodes",
    {
      apiVersion: "v1",
      kind: "Node",
      metadata: { name, labels: { "kubernetes.io/hostname": name } },
      spec: { taints: [{ key: "test", value: name, effect: "NoSchedule" }] },
      status: { capacity: allocatable, allocatable },
    },
    NEVER,
  );
  return async () => {
    const found = await admin.get("nodes", name, NEVER);
    if (found !== null) await admin.remove("nodes", name, { uid: found.metadata.uid }, NEVER);
    admin.close();
  };
}
