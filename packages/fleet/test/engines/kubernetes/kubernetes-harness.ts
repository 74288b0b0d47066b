/**
 * A Kubernetes backend in a namespace of its own that enforces Pod Security `restricted`, on the cluster of
 * `tests/cluster`. Pods, Secrets and claims that are left after a test fail it.
 */

import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, statSync, watch, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { EngineRef, FleetId } from "@sandlot/contract";
import { expect } from "vitest";
import type { Backend } from "../../../src/backend/backend.ts";
import type { Blueprint, NamedBlueprint } from "../../../src/backend/blueprint.ts";
import { type ApiClient, openApi } from "../../../src/backends/kubernetes/api/client.ts";
import { openKubernetesBackend } from "../../../src/backends/kubernetes/backend.ts";
import { type KubernetesConfig, kubernetesConfig, kubernetesSchema } from "../../../src/backends/kubernetes/config.ts";
import { installPolicies } from "../../../src/backends/kubernetes/network/install-policies.ts";
import { parseRef } from "../../../src/backends/kubernetes/pod/names.ts";
import type { KubernetesSettings } from "../../../src/backends/kubernetes/settings.ts";
import type { BackendHarness } from "../../../src/testing/backend-suite.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { sleep } from "../../../src/world/waiting.ts";

const world = systemWorld();
export const blueprint: Blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } };
export const IMAGE = "localhost/sandlot-test:1";
const NEVER = new AbortController().signal;

const MIB = 1024 * 1024;
const GONE_MS = 30_000;
export const KUBE_BIN = process.env.KUBE_BIN ?? join(homedir(), ".cache/kube-dev/bin");
/** Where the cluster's own provisioner keeps volumes. */
const VOLUMES = "/tmp/hostpath_pv";

/** The kubeconfig of the cluster; `null` where `tests/cluster` is not up. */
export const CLUSTER = process.env.SANDLOT_TEST_CLUSTER ?? null;

/** Whether the node has the image that the chart installs. */
export const HAS_GATEWAY_IMAGE =
  (await lookUp(async (api, signal) => {
    const node = await api.get("nodes", "node1", signal);
    const { images = [] } = (node as unknown as { status: { images?: { names?: string[] }[] } }).status;
    return images.some(({ names = [] }) => names.some((name) => name.endsWith("sandlot/gateway:1")));
  })) ?? false;

interface OpenMore {
  readonly fleetId?: FleetId;
  /** Whether the cluster is tried before the first sandbox. Default: as the harness. */
  readonly tries?: boolean;
  readonly blueprints?: Readonly<Record<string, NamedBlueprint>>;
}

interface KubernetesHarness extends BackendHarness {
  readonly api: ApiClient;
  /** As `open` would use them. */
  settings(different?: Partial<KubernetesConfig>): KubernetesSettings;
  installPolicies(egress: KubernetesConfig["egress"]): Promise<void>;
  open(different?: Partial<KubernetesConfig>, more?: OpenMore): Promise<Backend>;
}

function configOf(namespace: string, different: Partial<KubernetesConfig> = {}): KubernetesConfig {
  const given = {
    ...{ kubeconfig: CLUSTER ?? "/none", namespace, connect: "pod-ip", image: IMAGE, imagePullPolicy: "Never" },
    ...{ networkPolicy: "external", requestCpuCount: 0.01, requestMemoryBytes: 32 * MIB },
    ...{ memoryBytes: 512 * MIB, tmpBytes: 64 * MIB, homeBytes: 64 * MIB, diskBytes: 512 * MIB },
  };
  return { ...kubernetesConfig(kubernetesSchema.parse(given)), ...different };
}

async function openNamespace(): Promise<{ readonly api: ApiClient; close(): Promise<void> }> {
  const name = `sandlot-${world.randomHex(4)}`;
  const admin = await openApi({ kubeconfig: CLUSTER, context: null, namespace: name }, world);
  const labels = { "pod-security.kubernetes.io/enforce": "restricted" };
  await admin.create("namespaces", { apiVersion: "v1", kind: "Namespace", metadata: { name, labels } }, NEVER);
  return {
    api: admin,
    async close() {
      const found = await admin.get("namespaces", name, NEVER);
      if (found !== null) await admin.remove("namespaces", name, { uid: found.metadata.uid }, NEVER);
      admin.close();
    },
  };
}

/** Asks the cluster once. `null` also where there is none. */
export async function lookUp<T>(ask: (api: ApiClient, signal: AbortSignal) => Promise<T>): Promise<T | null> {
  if (CLUSTER === null) return null;
  const api = await openApi({ kubeconfig: CLUSTER, context: null, namespace: "default" }, world);
  try {
    return await ask(api, NEVER);
  } finally {
    api.close();
  }
}

interface HarnessOptions {
  /** Overrides of the backend's usual settings. */
  readonly different?: Partial<KubernetesConfig>;
  /** Whether the cluster is tried before the first sandbox. Default: no. */
  readonly tries?: boolean;
  readonly workspaces?: (api: ApiClient) => Promise<KubernetesConfig["workspaces"]>;
}

export async function openHarness(options: HarnessOptions = {}): Promise<KubernetesHarness> {
  const namespace = await openNamespace();
  const { api } = namespace;
  const workspaces = await options.workspaces?.(api);
  const usual = { ...options.different, ...(workspaces !== undefined && { workspaces }) };
  const backends: Backend[] = [];
  const fleetId = `fleet-${world.randomHex(3)}` as FleetId;
  const otherId = `other-${world.randomHex(3)}` as FleetId;
  const settingsOf = (different: Partial<KubernetesConfig> = {}): KubernetesSettings => {
    const kubernetes = configOf(api.namespace, { ...usual, ...different });
    return { fleetId, orphanTimeoutMs: 120_000, blueprints: {}, kubernetes };
  };
  const open: KubernetesHarness["open"] = async (different = {}, more = {}) => {
    const settings = { ...settingsOf(different), ...more };
    const backend = await openKubernetesBackend({ settings, world, tries: more.tries ?? options.tries ?? false });
    backends.push(backend);
    return backend;
  };
  return {
    ...{ api, fleetId, open },
    settings: settingsOf,
    installPolicies: async (egress) => void (await installPolicies(api, { egress, clusterRanges: [] }, false, NEVER)),
    backend: await open(),
    peer: () => open(),
    stranger: async () => ({ fleetId: otherId, backend: await open({}, { fleetId: otherId }) }),
    kill: (ref) => killPod(api, ref),
    dispose: async () => {
      await Promise.all(backends.map((backend) => backend.close()));
      const left = await leftovers(api);
      await namespace.close();
      expect(left, "what is left in the namespace").toEqual([]);
    },
  };
}

/** A claim that every pod of the namespace can mount, and its directory on this machine. */
export async function sharedClaim(api: ApiClient): Promise<KubernetesConfig["workspaces"]> {
  const claim = "workspaces";
  const spec = { accessModes: ["ReadWriteMany"], resources: { requests: { storage: "1Gi" } } };
  const metadata = { name: claim };
  await api.create(
    "persistentvolumeclaims",
    { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata, spec },
    NEVER,
  );
  const until = world.monotonicMs() + GONE_MS;
  for (;;) {
    const found = await api.get("persistentvolumeclaims", claim, NEVER);
    const { volumeName } = (found as unknown as { spec: { volumeName?: string } }).spec;
    const volume = volumeName === undefined ? null : await api.get("persistentvolumes", volumeName, NEVER);
    const root = (volume as { spec?: { hostPath?: { path: string } } } | null)?.spec?.hostPath?.path;
    if (root !== undefined) {
      // The provisioner lets only root in; the volume is used as the account of sandboxes.
      chmodSync(dirname(root), 0o755);
      chmodSync(root, 0o777);
      return { mode: "claim", claim, root, sizeBytes: 0 };
    }
    if (world.monotonicMs() > until) throw new Error("the claim was not bound");
    await sleep(world, 100);
  }
}

/** A kubeconfig of a service account of the namespace that may do nothing. */
export async function limitedAccount(api: ApiClient): Promise<string> {
  const { parse, stringify } = await import("yaml");
  const kubectl = (...args: string[]) =>
    execFileSync(join(KUBE_BIN, "kubectl"), ["--kubeconfig", CLUSTER ?? "", "--namespace", api.namespace, ...args], {
      encoding: "utf8",
    });
  kubectl("create", "serviceaccount", "limited");
  const config = parse(readFileSync(CLUSTER ?? "", "utf8"));
  config.users[0].user = { token: kubectl("create", "token", "limited").trim() };
  const file = join(mkdtempSync(join(tmpdir(), "sandlot-account-")), "config");
  writeFileSync(file, stringify(config), { mode: 0o600 });
  return file;
}

/** A claim for each thread, of the cluster's own storage class. */
export async function threadClaims(): Promise<KubernetesConfig["workspaces"]> {
  openVolumes();
  return { mode: "per-thread", sizeBytes: 64 * MIB };
}

let isOpening = false;

/** Lets the account of sandboxes into new volumes of the cluster: real drivers do so by `fsGroup`, host paths do not. */
export function openVolumes(): void {
  if (isOpening) return;
  isOpening = true;
  mkdirSync(VOLUMES, { recursive: true });
  chmodSync(VOLUMES, 0o755);
  const open = (name: string) => {
    const path = join(VOLUMES, name);
    try {
      // A change of the mode is an event as well.
      if ((statSync(path).mode & 0o777) !== 0o777) chmodSync(path, 0o777);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
  };
  watch(VOLUMES, (_event, name) => void (name !== null && open(name))).unref();
}

/** Kills every process of the pod on its node, as a crash would, and waits for the kubelet's word. */
async function killPod(api: ApiClient, ref: EngineRef): Promise<void> {
  const parsed = parseRef(ref);
  if (parsed === null) throw new Error(`${ref} names no pod`);
  const pids = processesOf(parsed.uid);
  if (pids.length === 0) throw new Error(`no process of ${ref} runs on this machine`);
  for (const pid of pids) kill(pid);
  const until = world.monotonicMs() + GONE_MS;
  for (;;) {
    const found = await api.get("pods", parsed.name, NEVER);
    const { phase } = (found as { status?: { phase?: string } } | null)?.status ?? {};
    if (found === null || phase === "Failed" || phase === "Succeeded") return;
    if (world.monotonicMs() > until) throw new Error(`${ref} is still ${phase ?? "there"}`);
    await sleep(world, 100);
  }
}

/** The end of the pod's first process ends the others. */
function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** Processes of a pod's containers on this machine, without its pause process. */
function processesOf(uid: string): readonly number[] {
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

/** Pods and their Secrets. The fleet's own ConfigMap and key stay. */
async function leftovers(api: ApiClient): Promise<readonly string[]> {
  const until = world.monotonicMs() + GONE_MS;
  for (;;) {
    const pods = (await api.list("pods", {}, NEVER)).items.map(({ metadata }) => `pod ${metadata.name}`);
    const secrets = (await api.list("secrets", {}, NEVER)).items
      .filter(({ metadata }) => !metadata.name.startsWith("sandlot-key-"))
      .map(({ metadata }) => `secret ${metadata.name}`);
    const left = [...pods, ...secrets];
    // The kubelet removes a pod that was let go of, and the garbage collector its Secret, a moment later.
    if (left.length === 0 || world.monotonicMs() > until) return left;
    await sleep(world, 200);
  }
}
