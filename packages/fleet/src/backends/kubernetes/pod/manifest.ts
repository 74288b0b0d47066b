/**
 * The pod of a sandbox, as it is sent to the API server.
 *
 * Invariants
 * - It passes Pod Security `restricted`: no privileges, no root, no host path, no host namespaces, no token.
 * - It is gated and has the finalizer from its first moment, and it never restarts.
 * - It has requests and limits for memory, processors and disk.
 * - Nothing in it is secret: everyone with the role `view` reads it.
 */

import { HOME_DIRECTORY, SandlotError, TEMPORARY_HOME, WORKSPACE_DIRECTORIES } from "@sandlot/contract";
import { SANDBOXD_NODE_FLAGS } from "@sandlot/sandboxd";
import type { CreateSpec, Place } from "../../../backend/backend.ts";
import type { Blueprint } from "../../../backend/blueprint.ts";
import type { KubernetesConfig } from "../config.ts";
import { DAEMON_PORT, INSIDE } from "../settings.ts";
import type { PodVolume } from "../workspaces/pod-workspaces.ts";
import { INTENT_GATE, PROOF_FINALIZER, podLabels, podName } from "./names.ts";
import { CONFIG_ENTRY } from "./pod-secret.ts";

export interface PodShape {
  readonly spec: Pick<CreateSpec, "labels" | "blueprint">;
  readonly place: Place;
  readonly config: KubernetesConfig;
  /** `null`: the workspace is a directory of the pod itself. */
  readonly workspace: PodVolume | null;
  /** Whether its accounts are apart from those of its node. A trial has shown that with the fleet's own runtime. */
  readonly hasOwnUsers: boolean;
}

/** The parts that are compared with what admission returns. The rest is only sent. */
export interface PodManifest {
  readonly metadata: { readonly name: string; readonly labels: Readonly<Record<string, string>> };
  readonly spec: {
    readonly containers: readonly object[];
    readonly initContainers?: readonly object[];
    readonly volumes: readonly object[];
    readonly [field: string]: unknown;
  };
  readonly [field: string]: unknown;
}

const GRACE_SECONDS = 15;
/** The daemon's own temporary files. */
const OWN_TMP_BYTES = 64 * 1024 * 1024;
/** Node, the daemon and its native parts, copied by an init container. */
const COPY_BYTES = 256 * 1024 * 1024;
const PLAIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** Meshes would put their own proxy into the pod, and autoscalers would move it. */
const ANNOTATIONS = {
  "sidecar.istio.io/inject": "false",
  "linkerd.io/inject": "disabled",
  "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
  "karpenter.sh/do-not-disrupt": "true",
} as const;

/** Minutes without a kubelet must not end a sandbox: the fleet decides, by proof. */
const TOLERATIONS = ["not-ready", "unreachable"].map((taint) => ({
  key: `node.kubernetes.io/${taint}`,
  operator: "Exists",
  effect: "NoExecute",
}));

export function podManifest(shape: PodShape): PodManifest {
  const { spec, place, config, workspace } = shape;
  const { labels, blueprint } = spec;
  const pod = blueprint.pod ?? {};
  const copies = config.daemon === "init-copy";
  const runtime = blueprint.runtime ?? config.runtimeClass;
  const priority = pod.priorityClassName ?? config.priorityClassName;
  const { volumes, mounts } = volumesOf(shape, copies);
  const image = blueprint.image ?? config.image;
  const fsGroup = workspace !== null && workspace.claimName !== "" && config.workspaces.mode === "per-thread";
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: podName(labels.sandboxId),
      labels: { ...pod.labels, ...podLabels(labels, place, blueprint.network.mode) },
      ...{ annotations: ANNOTATIONS, finalizers: [PROOF_FINALIZER] },
    },
    spec: {
      schedulingGates: [{ name: INTENT_GATE }],
      restartPolicy: "Never",
      terminationGracePeriodSeconds: GRACE_SECONDS,
      activeDeadlineSeconds: Math.ceil(config.hardLifetimeMs / 1_000),
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      ...(shape.hasOwnUsers && runtime === config.runtimeClass && { hostUsers: false }),
      hostname: "sandbox",
      ...dnsOf(blueprint, config),
      securityContext: {
        runAsNonRoot: true,
        runAsUser: config.uid,
        runAsGroup: config.gid,
        seccompProfile: { type: "RuntimeDefault" },
        ...(fsGroup && { fsGroup: config.gid, fsGroupChangePolicy: "OnRootMismatch" }),
        ...(pod.seLinuxLevel !== undefined && { seLinuxOptions: { level: pod.seLinuxLevel } }),
      },
      tolerations: [...TOLERATIONS, ...(pod.tolerations ?? [])],
      ...(runtime !== null && { runtimeClassName: runtime }),
      ...(priority !== null && { priorityClassName: priority }),
      ...(pod.nodeSelector && { nodeSelector: pod.nodeSelector }),
      ...(pod.affinity && { affinity: pod.affinity }),
      ...(pod.topologySpreadConstraints && { topologySpreadConstraints: pod.topologySpreadConstraints }),
      ...(pod.schedulerName !== undefined && { schedulerName: pod.schedulerName }),
      ...(pod.imagePullSecrets && { imagePullSecrets: pod.imagePullSecrets.map((name) => ({ name })) }),
      ...(copies && { initContainers: [copyContainer(config)] }),
      containers: [
        {
          name: "sandbox",
          image,
          imagePullPolicy: config.imagePullPolicy,
          command: startCommand(workspace),
          workingDir: "/",
          env: [{ name: "TMPDIR", value: INSIDE.temporary }],
          ports: [{ name: "daemon", containerPort: DAEMON_PORT }],
          securityContext: CONTAINER_SECURITY,
          resources: resourcesOf(blueprint, config),
          volumeMounts: mounts,
        },
      ],
      volumes,
    },
  };
}

const CONTAINER_SECURITY = {
  allowPrivilegeEscalation: false,
  privileged: false,
  readOnlyRootFilesystem: true,
  capabilities: { drop: ["ALL"] },
} as const;

/** The supervisor is the first process: it reaps, and commands cannot kill it. It reads the configuration once. */
function startCommand(workspace: PodVolume | null): readonly string[] {
  // A pod of its own volume begins with an empty one.
  const made = [...WORKSPACE_DIRECTORIES, HOME_DIRECTORY].map((name) => `${INSIDE.workspace}/${name}`).join(" ");
  const isOwn = workspace === null || workspace.mountPath === INSIDE.workspace;
  const script = [
    // The daemon loads nothing from the home: a sandbox writes there, and the next one has it.
    "unset HOME",
    `export PATH=${PLAIN_PATH} TMPDIR=${INSIDE.temporary} SANDBOXD_ENDS_ON_TERM=1`,
    ...(isOwn ? [`mkdir -p ${made} 2>/dev/null || :`] : []),
    `exec 3<${INSIDE.config}/${CONFIG_ENTRY}`,
    '. "$0"',
  ].join("\n");
  const at = (name: string) => `${INSIDE.daemon}/${name}`;
  return ["/bin/sh", "-c", script, at("supervisor.sh"), at("d"), ...SANDBOXD_NODE_FLAGS, at("sandboxd.cjs")];
}

function copyContainer(config: KubernetesConfig): object {
  return {
    name: "daemon",
    image: config.daemonImage ?? config.image,
    imagePullPolicy: config.imagePullPolicy,
    command: ["/bin/sh", "-c", `cp -a ${INSIDE.daemon}/. /copy/`],
    securityContext: CONTAINER_SECURITY,
    resources: {
      requests: { cpu: "10m", memory: "32Mi", "ephemeral-storage": String(COPY_BYTES) },
      limits: { cpu: "1", memory: "128Mi", "ephemeral-storage": String(COPY_BYTES) },
    },
    volumeMounts: [{ name: "daemon", mountPath: "/copy" }],
  };
}

function resourcesOf({ limits, pod }: Blueprint, config: KubernetesConfig): object {
  const memory = limits.memoryBytes ?? config.memoryBytes;
  const cpu = limits.cpuCount ?? config.cpuCount;
  const disk = limits.diskBytes ?? config.diskBytes;
  const extended = pod?.extendedResources ?? {};
  return {
    requests: {
      memory: String(Math.min(memory, config.requestMemoryBytes)),
      cpu: milli(Math.min(cpu, config.requestCpuCount)),
      "ephemeral-storage": String(Math.min(disk, REQUEST_DISK_BYTES)),
      ...extended,
    },
    limits: { memory: String(memory), cpu: milli(cpu), "ephemeral-storage": String(disk), ...extended },
  };
}

/** Most sandboxes write little. The limit is what ends one that does not. */
const REQUEST_DISK_BYTES = 64 * 1024 * 1024;

function milli(cpuCount: number): string {
  return `${Math.max(1, Math.round(cpuCount * 1_000))}m`;
}

/** `none` and `allowlist` ask a name server that does not exist: the proxy resolves names. */
function dnsOf({ network }: Blueprint, config: KubernetesConfig): object {
  const nameservers = network.mode === "open" ? [...config.nameServers] : ["127.0.0.1"];
  return { dnsPolicy: "None", dnsConfig: { nameservers, options: [{ name: "ndots", value: "1" }] } };
}

function volumesOf({ spec, config, workspace }: PodShape, copies: boolean) {
  const { labels, blueprint } = spec;
  const disk = blueprint.limits.diskBytes ?? config.diskBytes;
  const memory = (sizeLimit: number) => ({ emptyDir: { sizeLimit: String(sizeLimit) } });
  const own = [
    {
      volume: {
        name: "config",
        secret: {
          secretName: podName(labels.sandboxId),
          // Only root could read a narrower mode: the volume belongs to root.
          defaultMode: 0o444,
          items: [{ key: CONFIG_ENTRY, path: CONFIG_ENTRY }],
        },
      },
      mount: { name: "config", mountPath: INSIDE.config, readOnly: true },
    },
    { volume: { name: "own-tmp", ...memory(OWN_TMP_BYTES) }, mount: { name: "own-tmp", mountPath: INSIDE.temporary } },
    { volume: { name: "tmp", ...memory(config.tmpBytes) }, mount: { name: "tmp", mountPath: "/tmp" } },
    ...(blueprint.home === "temporary"
      ? [{ volume: { name: "home", ...memory(config.homeBytes) }, mount: { name: "home", mountPath: TEMPORARY_HOME } }]
      : []),
    ...(copies
      ? [
          {
            volume: { name: "daemon", ...memory(COPY_BYTES) },
            mount: { name: "daemon", mountPath: INSIDE.daemon, readOnly: true },
          },
        ]
      : []),
    workspace === null
      ? {
          volume: { name: "workspace", ...memory(disk) },
          mount: { name: "workspace", mountPath: INSIDE.workspace },
        }
      : {
          volume: { name: "workspace", persistentVolumeClaim: { claimName: workspace.claimName } },
          mount: {
            name: "workspace",
            mountPath: workspace.mountPath,
            ...(workspace.subPath !== null && { subPath: workspace.subPath }),
          },
        },
  ];
  const mounted = blueprint.mounts.map((mount, index) => namedVolume(mount, index, config));
  const all: { readonly volume: object; readonly mount: object }[] = [...own, ...mounted];
  return { volumes: all.map(({ volume }) => volume), mounts: all.map(({ mount }) => mount) };
}

function namedVolume(mount: Blueprint["mounts"][number], index: number, { volumes }: KubernetesConfig) {
  const { sandboxPath, readOnly, hostPath } = mount;
  if (mount.volume === undefined) throw refused(mount.hostPath, sandboxPath, "a cluster mounts no path of this host");
  const found = Object.hasOwn(volumes, mount.volume) ? volumes[mount.volume] : undefined;
  if (found === undefined || hostPath !== undefined)
    throw refused(mount.volume, sandboxPath, "kubernetes.volumes does not define it");
  const name = `extra-${index}`;
  const { claim, subPath, configMap } = found;
  if ((claim === undefined) === (configMap === undefined))
    throw refused(mount.volume, sandboxPath, "it needs `claim` or `configMap`, and only one of them");
  return {
    volume:
      claim === undefined
        ? { name, configMap: { name: configMap } }
        : { name, persistentVolumeClaim: { claimName: claim } },
    mount: {
      name,
      mountPath: sandboxPath,
      readOnly: readOnly || configMap !== undefined,
      ...(subPath !== undefined && { subPath }),
    },
  };
}

function refused(hostPath: string, sandboxPath: string, problem: string): SandlotError {
  return new SandlotError("mount_refused", { hostPath, sandboxPath, problem });
}
