/**
 * A Kubernetes backend in a namespace of its own that enforces Pod Security `restricted`, on the cluster of
 * `tests/cluster`. Pods, Secrets and claims that are left after a test fail it.
 */

import { readdirSync, readFileSync } from "node:fs";
import type { EngineRef, FleetId } from "@sandlot/contract";
import { expect } from "vitest";
import type { Backend } from "../../../src/backend/backend.ts";
import type { Blueprint } from "../../../src/backend/blueprint.ts";
import { ApiClient, openApi } from "../../../src/backends/kubernetes/api/client.ts";
import { openKubernetesBackend } from "../../../src/backends/kubernetes/backend.ts";
import { type KubernetesConfig, kubernetesConfig, kubernetesSchema } from "../../../src/backends/kubernetes/config.ts";
import { parseRef } from "../../../src/backends/kubernetes/pod/names.ts";
import type { BackendHarness } from "../../../src/testing/backend-suite.ts";
import { systemWorld } from "../../../src/world/system-world.ts";
import { sleep } from "../../../src/world/waiting.ts";

export const world = systemWorld();
export const blueprint: Blueprint = { environment: {}, limits: {}, mounts: [], network: { mode: "none", allow: [] } };
export const IMAGE = "localhost/sandlot-test:1";
export const NEVER = new AbortController().signal;

const MIB = 1024 * 1024;
const GONE_MS = 30_000;

/** The kubeconfig of the cluster; `null` where `tests/cluster` is not up. */
export const CLUSTER = process.env.SANDLOT_TEST_CLUSTER ?? null;

export interface KubernetesHarness extends BackendHarness {
  readonly api: ApiClient;
  open(different?: Partial<KubernetesConfig>, fleetId?: FleetId): Promise<Backend>;
}

export function configOf(namespace: string, different: Partial<KubernetesConfig> = {}): KubernetesConfig {
  const given = {
    ...{ kubeconfig: CLUSTER ?? "/none", namespace, connect: "pod-ip", image: IMAGE, imagePullPolicy: "Never" },
    ...{ networkPolicy: "external", requestCpuCount: 0.01, requestMemoryBytes: 32 * MIB },
    ...{ memoryBytes: 512 * MIB, tmpBytes: 64 * MIB, homeBytes: 64 * MIB, diskBytes: 512 * MIB },
  };
  return { ...kubernetesConfig(kubernetesSchema.parse(given)), ...different };
}

export async function openNamespace(): Promise<{ readonly api: ApiClient; close(): Promise<void> }> {
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

export async function openHarness(different: Partial<KubernetesConfig> = {}): Promise<KubernetesHarness> {
  const namespace = await openNamespace();
  const { api } = namespace;
  const backends: Backend[] = [];
  const fleetId = `fleet-${world.randomHex(3)}` as FleetId;
  const otherId = `other-${world.randomHex(3)}` as FleetId;
  const open: KubernetesHarness["open"] = async (more = {}, fleet = fleetId) => {
    const kubernetes = configOf(api.namespace, { ...different, ...more });
    const settings = { fleetId: fleet, orphanTimeoutMs: 120_000, blueprints: {}, kubernetes };
    const backend = await openKubernetesBackend({ settings, world });
    backends.push(backend);
    return backend;
  };
  return {
    ...{ api, fleetId, open },
    backend: await open(),
    peer: () => open(),
    stranger: async () => ({ fleetId: otherId, backend: await open({}, otherId) }),
    kill: (ref) => killPod(api, ref),
    dispose: async () => {
      await Promise.all(backends.map((backend) => backend.close()));
      const left = await leftovers(api);
      await namespace.close();
      expect(left, "what is left in the namespace").toEqual([]);
    },
  };
}

/** Kills every process of the pod on its node, as a crash would, and waits for the kubelet's word. */
export async function killPod(api: ApiClient, ref: EngineRef): Promise<void> {
  const parsed = parseRef(ref);
  if (parsed === null) throw new Error(`${ref} names no pod`);
  const pids = processesOf(parsed.uid);
  if (pids.length === 0) throw new Error(`no process of ${ref} runs on this machine`);
  for (const pid of pids) process.kill(pid, "SIGKILL");
  const until = world.monotonicMs() + GONE_MS;
  for (;;) {
    const found = await api.get("pods", parsed.name, NEVER);
    const { phase } = (found as { status?: { phase?: string } } | null)?.status ?? {};
    if (found === null || phase === "Failed" || phase === "Succeeded") return;
    if (world.monotonicMs() > until) throw new Error(`${ref} is still ${phase ?? "there"}`);
    await sleep(world, 100);
  }
}

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
