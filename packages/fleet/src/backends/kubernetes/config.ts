/** The section `kubernetes` of a configuration. */

import { z } from "zod";
import { accountId } from "../../backend/config/account-ids.ts";
import { durationFrom, durationOverZero, size } from "../../backend/config/amounts.ts";

const GIB = 1024 ** 3;
const DAY_MS = 86_400_000;
/** No lease begins so late: the cluster would end the sandbox under its holder. */
export const LAST_HOUR_MS = 3_600_000;

const KUBERNETES_DEFAULTS = {
  connect: "auto",
  image: "sandlot/sandbox:1",
  pull: "IfNotPresent",
  /** Our images bring the daemon; copying it costs about 100 MB per pod. */
  daemon: "in-image",
  uid: 10_001,
  gid: 10_001,
  memoryBytes: 2 * GIB,
  cpuCount: 2,
  diskBytes: 10 * GIB,
  /** What a pod is sure to have. Agents are idle most of the time, so the limits are higher. */
  requestMemoryBytes: GIB / 4,
  requestCpuCount: 0.1,
  tmpBytes: GIB,
  homeBytes: GIB,
  workspaces: "none",
  /** A cluster that does not enforce policies is refused, until its operator takes the responsibility. */
  networkPolicy: "enforce",
  ownNode: "warn",
  egressPort: 3_129,
  canaryPort: 3_130,
  /** A trial costs a new gateway a pod and seconds, and what it may give is a wall more around every sandbox. */
  userNamespaces: "auto",
  nameServers: ["1.1.1.1", "8.8.8.8"],
  /** As Kubernetes itself judges a node that is gone or declared out of service. */
  nodeLoss: "trust",
  hardLifetimeMs: 7 * DAY_MS,
  /** Image pulls and autoscalers take minutes. */
  readyTimeoutMs: 120_000,
} as const;

const text = z.string().min(1, "must not be empty");
const absolutePath = z.string().regex(/^\/[^\0]*$/, "must be an absolute path");
const port = z.int().min(1, "must be a port, 1 to 65535").max(65_535, "must be a port, 1 to 65535");

const volumeSchema = z.strictObject({
  claim: text.optional().describe("A PersistentVolumeClaim of the namespace."),
  subPath: text.optional().describe("A directory of the claim. Default: all of it."),
  configMap: text.optional().describe("In place of `claim`: a ConfigMap of the namespace, read-only."),
});

const workspacesSchema = z
  .strictObject({
    mode: z
      .enum(["none", "claim", "per-thread"])
      .default(KUBERNETES_DEFAULTS.workspaces)
      .describe(
        "`none`: files end with their sandbox. `claim`: one ReadWriteMany claim for all threads. `per-thread`: a claim for each thread.",
      ),
    claim: text.optional().describe("For `claim`: its name."),
    root: absolutePath.optional().describe("For `claim`: where this process has the same claim mounted."),
    storageClass: text.optional().describe("For `per-thread`: the storage class. Default: the cluster's."),
    sizeBytes: size.default(10 * GIB).describe("For `per-thread`: the size of each claim."),
  })
  .prefault({})
  .describe("Where threads' files are kept.");

export const kubernetesSchema = z
  .strictObject({
    kubeconfig: absolutePath
      .optional()
      .describe("A kubeconfig file. Default: the service account of this pod, $KUBECONFIG, then ~/.kube/config."),
    context: text.optional().describe("A context of the kubeconfig file. Default: its current one."),
    namespace: text
      .optional()
      .describe("The namespace of all sandboxes. Default: that of the service account or of the context."),
    connect: z
      .enum(["auto", "pod-ip", "port-forward"])
      .default(KUBERNETES_DEFAULTS.connect)
      .describe(
        "How daemons are reached. `pod-ip`: directly. `port-forward`: through the API server, for one person's machine. " +
          "`auto`: directly inside the cluster, otherwise through the API server.",
      ),
    image: text.default(KUBERNETES_DEFAULTS.image).describe("The image of blueprints that name none."),
    imagePullPolicy: z
      .enum(["Always", "IfNotPresent", "Never"])
      .default(KUBERNETES_DEFAULTS.pull)
      .describe("When nodes fetch the image."),
    daemon: z
      .enum(["in-image", "init-copy"])
      .default(KUBERNETES_DEFAULTS.daemon)
      .describe(
        "`in-image`: the image has the daemon in /opt/sandlot. `init-copy`: an init container copies it from `daemonImage`; " +
          "the image then needs only /bin/sh.",
      ),
    daemonImage: text.optional().describe("For `init-copy`: an image with the daemon. Default: `image`."),
    runtimeClass: text
      .optional()
      .describe("The RuntimeClass of blueprints that name no runtime. Default: the cluster's own runtime."),
    priorityClassName: text.optional().describe("The priority class of pods. Default: the cluster's."),
    uid: accountId.default(KUBERNETES_DEFAULTS.uid).describe("The account that sandboxes run as."),
    gid: accountId.default(KUBERNETES_DEFAULTS.gid).describe("The group that goes with `uid`."),
    memoryBytes: size.default(KUBERNETES_DEFAULTS.memoryBytes).describe("The memory limit of blueprints without one."),
    cpuCount: z
      .number()
      .positive("must be more than 0")
      .default(KUBERNETES_DEFAULTS.cpuCount)
      .describe("The processor limit of blueprints without one."),
    diskBytes: size
      .default(KUBERNETES_DEFAULTS.diskBytes)
      .describe("The limit for everything that a pod writes to its node, for blueprints without one."),
    requestMemoryBytes: size
      .default(KUBERNETES_DEFAULTS.requestMemoryBytes)
      .describe("The memory that the scheduler reserves for a pod."),
    requestCpuCount: z
      .number()
      .positive("must be more than 0")
      .default(KUBERNETES_DEFAULTS.requestCpuCount)
      .describe("The processors that the scheduler reserves for a pod."),
    tmpBytes: size.default(KUBERNETES_DEFAULTS.tmpBytes).describe("Size of a sandbox's private /tmp."),
    homeBytes: size.default(KUBERNETES_DEFAULTS.homeBytes).describe("Size of a sandbox's private home directory."),
    workspaces: workspacesSchema,
    volumes: z
      .record(z.string().regex(/^[a-z0-9-]{1,40}$/, "has lower-case letters, digits and hyphens only"), volumeSchema)
      .default({})
      .describe("Volumes that blueprints may mount by name (`mounts: [{ volume: … }]`)."),
    userNamespaces: z
      .enum(["auto", "require", "off"])
      .default(KUBERNETES_DEFAULTS.userNamespaces)
      .describe(
        "Whether the accounts of a pod are apart from those of its node (`hostUsers: false`). `auto`: where a trial pod with the " +
          "workspaces' volume starts so. `require`: nothing is made without it.",
      ),
    networkPolicy: z
      .enum(["enforce", "external"])
      .default(KUBERNETES_DEFAULTS.networkPolicy)
      .describe(
        "`enforce`: every sandbox proves that the cluster enforces its network policy before anything runs in it. " +
          "`external`: the operator answers for the isolation; nothing is checked.",
      ),
    ownNode: z
      .enum(["warn", "refuse"])
      .default(KUBERNETES_DEFAULTS.ownNode)
      .describe("What `sandlot doctor` does about ports of a sandbox's own node, which policies always allow."),
    egress: z
      .strictObject({
        host: text.optional().describe("The address of the egress proxies' Service. Without it there is no network."),
        port: port.default(KUBERNETES_DEFAULTS.egressPort).describe("Its port for sandboxes."),
        canaryPort: port
          .default(KUBERNETES_DEFAULTS.canaryPort)
          .describe("A port of it that no policy allows: sandboxes prove by it that policies are enforced."),
      })
      .prefault({})
      .describe("The egress proxies of the fleet."),
    clusterRanges: z
      .array(text)
      .default([])
      .describe("Networks (CIDR) of pods, services and nodes. Without them the network mode `open` is refused."),
    nameServers: z
      .array(text)
      .default([...KUBERNETES_DEFAULTS.nameServers])
      .describe("Name servers of sandboxes with the network mode `open`."),
    nodeLoss: z
      .enum(["trust", "confirm"])
      .default(KUBERNETES_DEFAULTS.nodeLoss)
      .describe(
        "`trust`: a sandbox whose Node object is gone, or is not ready and tainted out-of-service, counts as dead; the machine must be off. " +
          "`confirm`: only `sandlot confirm-dead` ends such a sandbox.",
      ),
    hardLifetimeMs: durationFrom(2 * LAST_HOUR_MS, "a pod takes no lease in its last hour")
      .default(KUBERNETES_DEFAULTS.hardLifetimeMs)
      .describe(
        "When the cluster ends a pod by itself, whatever runs in it. From an hour before on a sandbox takes no new leases, " +
          "and it ends with its last one, as after `maxLifetimeMs`.",
      ),
    readyTimeoutMs: durationOverZero("no pod is ready in no time")
      .default(KUBERNETES_DEFAULTS.readyTimeoutMs)
      .describe("How long a pod may take to be scheduled and ready, image included."),
  })
  .prefault({})
  .describe("The kubernetes backend (experimental).");

export type CompletedKubernetes = z.output<typeof kubernetesSchema>;

/** The section after validation: `null` stands for a value that is detected or left to the cluster. */
export type KubernetesConfig = Readonly<
  Omit<CompletedKubernetes, "kubeconfig" | "context" | "namespace" | "runtimeClass" | "priorityClassName">
> & {
  readonly kubeconfig: string | null;
  readonly context: string | null;
  readonly namespace: string | null;
  readonly runtimeClass: string | null;
  readonly priorityClassName: string | null;
};

export function kubernetesConfig(completed: CompletedKubernetes): KubernetesConfig {
  const {
    kubeconfig = null,
    context = null,
    namespace = null,
    runtimeClass = null,
    priorityClassName = null,
  } = completed;
  return { ...completed, kubeconfig, context, namespace, runtimeClass, priorityClassName };
}
