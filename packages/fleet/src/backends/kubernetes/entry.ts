/** The `kubernetes` backend in the registry. */

import type { EngineRef } from "@sandlot/contract";
import type { BackendEntry } from "../../backend/entry.ts";
import {
  type CompletedKubernetes,
  type KubernetesConfig,
  kubernetesConfig,
  kubernetesSchema,
  LAST_HOUR_MS,
} from "./config.ts";

/** `<namespace>/sandlot-<sandboxId>/<uid>`. The module with the parser would be loaded by every command. */
const REF_PATTERN = /^[a-z0-9-]+\/sandlot-[a-z0-9-]+\/[0-9a-f-]{36}$/;

export const KUBERNETES = {
  name: "kubernetes",
  about: "pods of a Kubernetes cluster (experimental)",
  configSchema: kubernetesSchema,
  endsWithProcess: false,
  hasPods: true,
  settings: kubernetesConfig,
  volumes: ({ volumes }) => Object.keys(volumes),
  lifetimeMaxMs: ({ hardLifetimeMs }) => hardLifetimeMs - LAST_HOUR_MS,
  blueprintKey({
    image,
    daemon,
    daemonImage,
    runtimeClass,
    uid,
    gid,
    memoryBytes,
    cpuCount,
    diskBytes,
    workspaces,
    userNamespaces,
  }) {
    const { mode, claim = null, storageClass = null } = workspaces;
    const limits = [memoryBytes, cpuCount, diskBytes];
    const own = [
      image,
      daemon,
      daemonImage ?? null,
      runtimeClass,
      uid,
      gid,
      limits,
      [mode, claim, storageClass],
      userNamespaces,
    ];
    return JSON.stringify(["kubernetes", ...own]);
  },
  // The defaults come from the section, because they fit a cluster and not this machine.
  canLimit: () => false,
  experimental: () => ["backend: kubernetes is new; docs/backends/kubernetes.md lists what it cannot do yet"],
  async open({ fleet, section, world }) {
    const { openKubernetesBackend } = await import("./backend.ts");
    return openKubernetesBackend({ settings: { ...fleet, kubernetes: section }, world });
  },
  async doctor({ fleet, section }) {
    const { kubernetesFindings } = await import("./doctor.ts");
    return kubernetesFindings({ ...fleet, kubernetes: section });
  },
  async letGo({ fleet, section, world, machinesAreOff }, signal) {
    const { letGo } = await import("./let-go.ts");
    return letGo({ ...fleet, kubernetes: section }, world, machinesAreOff, signal);
  },
  owns: (ref: EngineRef) => REF_PATTERN.test(ref),
} as const satisfies BackendEntry<CompletedKubernetes, KubernetesConfig>;
