/**
 * Pods that try what a cluster promises, before any sandbox relies on it. They run a fixed program of ours and nothing of a
 * user, and have no finalizer: removing them needs no proof.
 *
 * Invariants
 * - They keep to Pod Security `restricted`, as sandboxes do, and end by themselves after a minute or two.
 * - They are found by the label `sandlot.dev/trial` alone: no list of sandboxes shows them.
 * - Every trial removes its pods, and those of processes that died in one.
 */

import { SandlotError } from "@sandlot/contract";
import type { PodSettings } from "../../../backend/pod-settings.ts";
import { sleep, within } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import type { ApiClient } from "../api/client.ts";
import { LABEL, ROLE } from "../pod/names.ts";
import { isTerminal, type Pod, podOf } from "../pod/pod.ts";
import { explainWaiting, failureOf } from "../pod/progress.ts";
import { DAEMON_PORT, INSIDE, type KubernetesSettings } from "../settings.ts";

export interface TrialShape {
  readonly role: string;
  /** The policy that it gets. Absent: none. */
  readonly network?: "none" | "allowlist" | "open";
  /** For the Node of the daemon, or for /bin/sh. */
  readonly program: string;
  readonly isShell?: boolean;
  readonly environment?: Readonly<Record<string, string>>;
  readonly claim?: { readonly name: string; readonly subPath: string; readonly mountPath: string };
  /** A new claim that ends with the pod, like that of a thread. */
  readonly ownClaim?: {
    readonly storageClass: string | undefined;
    readonly sizeBytes: number;
    readonly mountPath: string;
  };
  /** Accounts apart from those of its node. */
  readonly hasOwnUsers?: boolean;
  /** Of a blueprint. Absent: the fleet's own, with the daemon's Node in it. */
  readonly image?: string;
}

export interface TrialPod {
  readonly name: string;
  readonly uid: string;
}

export interface TrialContext {
  readonly api: ApiClient;
  readonly world: World;
  readonly settings: KubernetesSettings;
}

/** For the cluster, when the process that made them does not remove them. */
const LIFETIME_SECONDS = 180;
const STALE_MS = 300_000;
const LOOK_MS = 150;
const REMOVE_MS = 20_000;

export class TrialPods {
  readonly #context: TrialContext;
  readonly #made: TrialPod[] = [];

  constructor(context: TrialContext) {
    this.#context = context;
  }

  async make(shape: TrialShape, signal: AbortSignal): Promise<TrialPod> {
    const { api, world, settings } = this.#context;
    const name = `sandlot-trial-${world.randomHex(6)}`;
    const pod = await api.create("pods", trialManifest(name, shape, settings), signal);
    const made = { name, uid: pod.metadata.uid };
    this.#made.push(made);
    if (shape.hasOwnUsers === true && podOf(pod).spec.hostUsers !== false)
      throw failed("the API server or a webhook dropped hostUsers: false");
    return made;
  }

  /** The pod when it runs and has an address. Rejects with what keeps it from starting. */
  running(pod: TrialPod, signal: AbortSignal): Promise<Pod> {
    return this.#until(pod, signal, ({ status }) => status.phase === "Running" && status.podIP !== "");
  }

  /** What its program wrote to /dev/termination-log before it ended. */
  async ended(pod: TrialPod, signal: AbortSignal, limitMs?: number): Promise<string> {
    const { status } = await this.#until(pod, signal, isTerminal, limitMs);
    return status.containerStatuses?.[0]?.state.terminated?.message ?? "";
  }

  async removeAll(): Promise<void> {
    const { api, world, settings } = this.#context;
    const late = () => new Error("the cluster did not answer");
    await within(world, REMOVE_MS, undefined, late, async (signal) => {
      for (const { name, uid } of this.#made.splice(0))
        await api.remove("pods", name, { uid, gracePeriodSeconds: 0 }, signal);
      const labelSelector = `${LABEL.trial}=${settings.fleetId}`;
      for (const { metadata } of (await api.list("pods", { labelSelector }, signal)).items) {
        const isStale = world.wallMs() - Date.parse(metadata.creationTimestamp ?? "") > STALE_MS;
        if (isStale) await api.remove("pods", metadata.name, { uid: metadata.uid, gracePeriodSeconds: 0 }, signal);
      }
    });
  }

  async #until(
    { name, uid }: TrialPod,
    signal: AbortSignal,
    isReached: (pod: Pod) => boolean,
    limitMs = this.#context.settings.kubernetes.readyTimeoutMs,
  ): Promise<Pod> {
    const { api, world, settings } = this.#context;
    const image = trialImage(settings);
    const startedAt = world.monotonicMs();
    for (;;) {
      const found = await api.get("pods", name, signal);
      if (found === null || found.metadata.uid !== uid) throw failed("a trial pod was deleted by something else");
      const pod = podOf(found);
      if (isReached(pod)) return pod;
      const error = await failureOf(pod, image, () => api.log(name, 20, signal).catch(() => ""));
      if (error !== null) throw error;
      const waitedMs = Math.round(world.monotonicMs() - startedAt);
      if (waitedMs > limitMs) throw explainWaiting(pod, image, waitedMs, []);
      await sleep(world, LOOK_MS, signal);
    }
  }
}

function trialImage({ kubernetes }: KubernetesSettings): string {
  const { daemon, daemonImage, image } = kubernetes;
  return daemon === "init-copy" ? (daemonImage ?? image) : image;
}

/** Where sandboxes may run, so may their trial: on several nodes where there are several, and beside no gateway. */
function placing(pod: PodSettings | undefined, fleetId: string): object {
  const apart = (weight: number, matchLabels: Readonly<Record<string, string>>) => ({
    weight,
    podAffinityTerm: { topologyKey: "kubernetes.io/hostname", labelSelector: { matchLabels } },
  });
  const spread = [apart(100, { [LABEL.trial]: fleetId }), apart(50, { [LABEL.role]: ROLE.gateway })];
  const podAntiAffinity = { preferredDuringSchedulingIgnoredDuringExecution: spread };
  return {
    ...(pod?.nodeSelector && { nodeSelector: pod.nodeSelector }),
    affinity: pod?.affinity ?? { podAntiAffinity },
    ...(pod?.tolerations && { tolerations: pod.tolerations }),
    ...(pod?.schedulerName !== undefined && { schedulerName: pod.schedulerName }),
    ...(pod?.imagePullSecrets && { imagePullSecrets: pod.imagePullSecrets.map((name) => ({ name })) }),
  };
}

function trialManifest(name: string, shape: TrialShape, settings: KubernetesSettings): object {
  const { kubernetes: config, blueprints, fleetId } = settings;
  const { role, network, program, environment = {}, image = trialImage(settings), isShell = false } = shape;
  const volume = volumeOf(shape);
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name,
      labels: { [LABEL.role]: role, [LABEL.trial]: fleetId, ...(network && { [LABEL.network]: network }) },
      annotations: { "sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled" },
    },
    spec: {
      restartPolicy: "Never",
      terminationGracePeriodSeconds: 1,
      activeDeadlineSeconds: LIFETIME_SECONDS,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      ...(shape.hasOwnUsers === true && { hostUsers: false }),
      ...placing(blueprints.default?.blueprint.pod, fleetId),
      ...(config.runtimeClass !== null && { runtimeClassName: config.runtimeClass }),
      ...(config.priorityClassName !== null && { priorityClassName: config.priorityClassName }),
      securityContext: {
        runAsNonRoot: true,
        runAsUser: config.uid,
        runAsGroup: config.gid,
        seccompProfile: { type: "RuntimeDefault" },
        ...(shape.ownClaim && { fsGroup: config.gid, fsGroupChangePolicy: "OnRootMismatch" }),
      },
      containers: [
        {
          name: "trial",
          image,
          imagePullPolicy: config.imagePullPolicy,
          command: isShell ? ["/bin/sh", "-c", program] : [`${INSIDE.daemon}/d`, "-e", program],
          env: [
            { name: "NODE_IP", valueFrom: { fieldRef: { fieldPath: "status.hostIP" } } },
            ...Object.entries({ PORT: String(DAEMON_PORT), ...environment }).map(([key, value]) => ({
              ...{ name: key, value },
            })),
          ],
          securityContext: {
            ...{ allowPrivilegeEscalation: false, privileged: false, readOnlyRootFilesystem: true },
            capabilities: { drop: ["ALL"] },
          },
          resources: {
            requests: { cpu: "10m", memory: "64Mi", "ephemeral-storage": "16Mi" },
            limits: { cpu: "1", memory: "256Mi", "ephemeral-storage": "64Mi" },
          },
          ...(volume && { volumeMounts: [{ name: "trial", ...volume.mount }] }),
        },
      ],
      ...(volume && { volumes: [{ name: "trial", ...volume.source }] }),
    },
  };
}

function volumeOf({ claim, ownClaim }: TrialShape): { readonly mount: object; readonly source: object } | null {
  if (claim !== undefined) {
    const { name, mountPath, subPath } = claim;
    return { mount: { mountPath, subPath }, source: { persistentVolumeClaim: { claimName: name } } };
  }
  if (ownClaim === undefined) return null;
  const { storageClass, sizeBytes, mountPath } = ownClaim;
  const spec = {
    accessModes: ["ReadWriteOnce"],
    resources: { requests: { storage: String(sizeBytes) } },
    ...(storageClass !== undefined && { storageClassName: storageClass }),
  };
  return { mount: { mountPath }, source: { ephemeral: { volumeClaimTemplate: { spec } } } };
}

function failed(problem: string): SandlotError {
  return new SandlotError("create_failed", { backend: "kubernetes", problem });
}
