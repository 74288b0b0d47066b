/**
 * The cluster of `tests/cluster`, as an administrator and the machine below it see it: a namespace and a claim of the
 * run's own, pods and their processes, and the signals that stop and start a node.
 *
 * Faults of a node hit the cluster's last one. With two nodes the first keeps the cluster's other work.
 *
 * Invariant: signals go only to processes that `up.sh` has recorded, with their start times.
 */

import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Api, ApiObject } from "../../../packages/fleet/src/backends/kubernetes/api/api.ts";
import { type ApiClient, openApi } from "../../../packages/fleet/src/backends/kubernetes/api/client.ts";
import { LABEL } from "../../../packages/fleet/src/backends/kubernetes/pod/names.ts";
import { systemWorld } from "../../../packages/fleet/src/world/system-world.ts";

const NEVER = new AbortController().signal;
const WAIT_MS = 120_000;
/** `tests/cluster/sandbox-image.sh` makes it. */
export const IMAGE = "localhost/sandlot-test:1";

export interface FleetObject {
  readonly name: string;
  readonly fleet: string | null;
}

export class Cluster {
  readonly api: ApiClient;
  readonly kubeconfig: string;
  /** What `up.sh` keeps: `run/` has the pids, `pki/` the certificates. */
  readonly directory: string;
  /** The node that faults hit, and that the run's pods are on. */
  readonly node: string;

  private constructor(api: ApiClient, kubeconfig: string, node: string) {
    this.api = api;
    this.kubeconfig = kubeconfig;
    this.directory = dirname(dirname(kubeconfig));
    this.node = node;
  }

  /** A namespace of its own on the cluster; or why there is none. */
  static async open(kubeconfig: string | undefined): Promise<Cluster | string> {
    if (kubeconfig === undefined) return "no cluster is up: SANDLOT_TEST_CLUSTER, tests/cluster/README.md";
    if (!existsSync(kubeconfig)) return `there is no ${kubeconfig}`;
    if (process.getuid?.() !== 0) return "signals to the cluster's processes take root";
    const world = systemWorld();
    const namespace = `chaos-${world.randomHex(4)}`;
    const api = await openApi({ kubeconfig, context: null, namespace }, world);
    const labels = { "pod-security.kubernetes.io/enforce": "restricted" };
    await api.create(
      "namespaces",
      { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace, labels } },
      NEVER,
    );
    const nodes = (await api.list("nodes", {}, NEVER)).items.map(({ metadata }) => metadata.name).toSorted();
    return new Cluster(api, kubeconfig, nodes.findLast((name) => /^node\d+$/.test(name)) ?? "node1");
  }

  get namespace(): string {
    return this.api.namespace;
  }

  /** A claim that every pod can mount, and its directory on this machine. */
  async claim(): Promise<{ readonly claim: string; readonly root: string }> {
    const claim = "workspaces";
    const spec = { accessModes: ["ReadWriteMany"], resources: { requests: { storage: "1Gi" } } };
    const body = { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: { name: claim }, spec };
    await this.api.create("persistentvolumeclaims", body, NEVER);
    const root = await until("the claim is bound", async () => {
      const found = await this.api.get("persistentvolumeclaims", claim, NEVER);
      const { volumeName } = (found as unknown as { spec: { volumeName?: string } }).spec;
      const volume = volumeName === undefined ? null : await this.api.get("persistentvolumes", volumeName, NEVER);
      return (volume as { spec?: { hostPath?: { path: string } } } | null)?.spec?.hostPath?.path ?? null;
    });
    // The provisioner lets only root in; the volume is used as the account of sandboxes.
    chmodSync(dirname(root), 0o755);
    chmodSync(root, 0o777);
    return { claim, root };
  }

  async close(): Promise<void> {
    const found = await this.api.get("namespaces", this.namespace, NEVER);
    if (found !== null) await this.api.remove("namespaces", this.namespace, { uid: found.metadata.uid }, NEVER);
    this.api.close();
  }

  /** Everything of the kinds that a fleet makes, without what a fleet keeps for good. */
  async objects(): Promise<readonly FleetObject[]> {
    const kinds = ["pods", "secrets", "persistentvolumeclaims", "networkpolicies", "configmaps", "services"] as const;
    const listed = await Promise.all(
      kinds.map(async (kind) =>
        (await this.api.list(kind, {}, NEVER)).items
          .filter(({ metadata }) => !isPassing(metadata))
          .map(({ metadata: { name, labels } }) => ({ name: `${kind} ${name}`, fleet: labels[LABEL.fleet] ?? null })),
      ),
    );
    return listed.flat().filter(({ name }) => !KEPT.some((pattern) => pattern.test(name)));
  }

  pod(name: string): Promise<ApiObject | null> {
    return this.api.get("pods", name, NEVER);
  }

  async deletePod(name: string, gracePeriodSeconds?: number): Promise<void> {
    const found = await this.pod(name);
    if (found === null) return;
    const options = { uid: found.metadata.uid, ...(gracePeriodSeconds !== undefined && { gracePeriodSeconds }) };
    await this.api.remove("pods", name, options, NEVER);
  }

  /** As `kubectl drain` does it. */
  async evictPod(name: string): Promise<void> {
    const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: this.namespace } };
    const path = `/api/v1/namespaces/${this.namespace}/pods/${name}/eviction`;
    const { status, body: answer } = await this.api.transport.send({ method: "POST", path, body }, NEVER);
    if (status >= 300 && status !== 404) throw new Error(`the eviction was refused: ${JSON.stringify(answer)}`);
  }

  get watchApi(): Pick<Api, "list" | "watch"> {
    return this.api;
  }

  /** The kubelet answers nothing from now on: it is stopped, as on a machine that hangs. Its containers run on. */
  stopNode(): void {
    process.kill(this.pidOf(this.node.replace("node", "kubelet")), "SIGSTOP");
  }

  startNode(): void {
    process.kill(this.pidOf(this.node.replace("node", "kubelet")), "SIGCONT");
  }

  /** The API server answers nothing, for anybody. */
  stopApi(): void {
    process.kill(this.pidOf("kube-apiserver"), "SIGSTOP");
  }

  startApi(): void {
    process.kill(this.pidOf("kube-apiserver"), "SIGCONT");
  }

  /** Every process of the namespace's pods, as when their machine goes off. */
  async killPods(): Promise<void> {
    for (const { metadata } of (await this.api.list("pods", {}, NEVER)).items)
      for (const pid of processesOf(metadata.uid)) signal(pid, "SIGKILL");
  }

  /** The taint by which an administrator says that a machine is off. */
  async setOutOfService(isOff: boolean): Promise<void> {
    const found = await this.api.get("nodes", this.node, NEVER);
    const { taints = [] } = (found as { spec?: { taints?: { key: string }[] } } | null)?.spec ?? {};
    const others = taints.filter(({ key }) => key !== OUT_OF_SERVICE);
    const value = isOff ? [...others, { key: OUT_OF_SERVICE, value: "nodeshutdown", effect: "NoExecute" }] : others;
    await this.api.patch("nodes", this.node, [{ op: "add", path: "/spec/taints", value }], NEVER);
  }

  async nodeIsReady(): Promise<boolean> {
    const found = await this.api.get("nodes", this.node, NEVER);
    const { conditions = [] } =
      (found as { status?: { conditions?: { type: string; status: string }[] } }).status ?? {};
    return conditions.some(({ type, status }) => type === "Ready" && status === "True");
  }

  untilNode(isReady: boolean): Promise<true> {
    return until(`${this.node} is ${isReady ? "" : "not "}Ready`, async () =>
      (await this.nodeIsReady()) === isReady ? true : null,
    );
  }

  /** No packet comes to this address any more, as when the way to its node is cut. */
  cutWayTo(address: string): void {
    route("add", address);
  }

  restoreWayTo(address: string): void {
    route("del", address);
  }

  pidOf(program: string): number {
    const [pid, started] = readFileSync(join(this.directory, "run", `${program}.pid`), "utf8")
      .trim()
      .split(" ");
    const fields = readFileSync(`/proc/${pid}/stat`, "latin1")
      .replace(/^.*\) /s, "")
      .split(" ");
    if (fields[19] !== started) throw new Error(`${program} does not run any more`);
    return Number(pid);
  }
}

const OUT_OF_SERVICE = "node.kubernetes.io/out-of-service";

/** The fleet's own, and what Kubernetes puts into every namespace. */
const KEPT = [
  /^secrets sandlot-key-/,
  /^configmaps (sandlot-fleet-|kube-root-ca\.crt)/,
  /^persistentvolumeclaims workspaces$/,
  /^networkpolicies sandlot-/,
];

/**
 * A trial pod of a gateway that was killed in its trial: it ends by itself after three minutes, and the next trial two
 * minutes later removes it. Only one that is older is a leak.
 */
function isPassing({
  name,
  creationTimestamp,
}: {
  readonly name: string;
  readonly creationTimestamp?: string | null | undefined;
}): boolean {
  return name.startsWith("sandlot-trial-") && Date.now() - Date.parse(creationTimestamp ?? "") < TRIAL_MS;
}

const TRIAL_MS = 480_000;

/** Processes of a pod's containers on this machine, without its pause process. */
export function processesOf(uid: string): readonly number[] {
  const mark = new RegExp(`pod(${uid}|${uid.replaceAll("-", "_")})`);
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const isOfPod = mark.test(readFileSync(`/proc/${pid}/cgroup`, "latin1"));
        return isOfPod && !readFileSync(`/proc/${pid}/cmdline`, "latin1").startsWith("/pause");
      } catch {
        return false;
      }
    });
}

/** A process that has ended meanwhile is no mistake. */
export function signal(pid: number, name: "SIGSTOP" | "SIGKILL"): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as { readonly code?: string }).code !== "ESRCH") throw error;
  }
}

export async function until<T>(what: string, look: () => Promise<T | null>, limitMs = WAIT_MS): Promise<T> {
  const deadline = performance.now() + limitMs;
  for (;;) {
    const found = await look();
    if (found !== null) return found;
    if (performance.now() > deadline) throw new Error(`not within ${limitMs} ms: ${what}`);
    await sleep(100);
  }
}

function route(verb: "add" | "del", address: string): void {
  const { status, stderr } = spawnSync("ip", ["route", verb, "blackhole", `${address}/32`], { encoding: "utf8" });
  if (status !== 0) throw new Error(`ip route ${verb} ${address}: ${stderr}`);
}
