/**
 * An environment on a Kubernetes cluster: a namespace of its own, workspaces on a shared claim, records on a Redis
 * server, and gateways that reach the API server through a link that can be made to fail. The bystander is a pod.
 */

import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { podOf } from "../../../packages/fleet/src/backends/kubernetes/pod/pod.ts";
import type { Lease } from "../../../packages/fleet/src/fleet.ts";
import { ApiLink } from "../../../packages/fleet/test/engines/kubernetes/api-link.ts";
import { writeKubeconfig } from "../../../packages/fleet/test/engines/kubernetes/linked-kubeconfig.ts";
import { RedisProcess } from "../../../packages/fleet/test/engines/redis/redis-process.ts";
import type { Random } from "../../simulation/schedule/random.ts";
import { Environment, type SandboxName } from "../stage/environment.ts";
import { KILL_STAGES, type Tally } from "../stage/tally.ts";
import type { StartWatch } from "../stage/target.ts";
import { type Cluster, IMAGE, until } from "./cluster.ts";
import { PodStarts } from "./pod-starts.ts";
import { WRITER, Writers } from "./writers.ts";

const MIB = 1024 * 1024;
const NEVER = new AbortController().signal;
const GONE_MS = 30_000;
const BYSTANDER = "bystander";

interface Ground {
  readonly cluster: Cluster;
  readonly link: ApiLink;
  readonly store: RedisProcess;
  readonly place: string;
  /** The claim's directory on this machine. */
  readonly root: string;
}

export class KubernetesEnvironment extends Environment {
  readonly stages = KILL_STAGES;
  override readonly writer = WRITER;
  readonly ground: Ground;
  readonly writers: Writers;

  private constructor(ground: Ground, claim: string, tally: Tally) {
    const { cluster, store, place, root } = ground;
    const pod = {
      nodeSelector: { "kubernetes.io/hostname": cluster.node },
      tolerations: [{ key: "sandlot.dev/chaos", operator: "Exists" }],
    };
    const kubernetes = {
      ...{ kubeconfig: linkedKubeconfig(ground), namespace: cluster.namespace },
      ...({ connect: "pod-ip", image: IMAGE, imagePullPolicy: "Never", networkPolicy: "external" } as const),
      ...{ requestCpuCount: 0.01, requestMemoryBytes: 32 * MIB, memoryBytes: 256 * MIB },
      ...{ tmpBytes: 64 * MIB, homeBytes: 64 * MIB, diskBytes: 512 * MIB },
      workspaces: { mode: "claim", claim, root } as const,
    };
    super(place, tally, {
      engine: { backend: "kubernetes", kubernetes, store: { type: "redis", url: `redis://127.0.0.1:${store.port}/0` } },
      limits: { memoryBytes: 256 * MIB },
      pooledLimits: { memoryBytes: 257 * MIB },
      blueprint: { pod },
      hasEgress: false,
      sessionLifetimeMs: 12_000,
    });
    this.ground = ground;
    this.writers = new Writers(tally);
  }

  static async prepare(cluster: Cluster, random: Random, tally: Tally): Promise<KubernetesEnvironment> {
    const place = mkdtempSync("/tmp/sl-chaos-");
    const home = join(place, "home");
    mkdirSync(home, { mode: 0o700 });
    const { claim, root } = await cluster.claim();
    const link = await ApiLink.open({ server: cluster.api.server, directory: cluster.directory }, random);
    const store = await RedisProcess.start();
    process.on("exit", () => rmSync(place, { recursive: true, force: true }));
    return new KubernetesEnvironment({ cluster, link, store, place, root }, claim, tally);
  }

  watchStarts(): Promise<StartWatch> {
    return PodStarts.open(this.ground.cluster);
  }

  async podOf(thread: string) {
    const found = await this.fleet.find({ thread });
    const pod = found === null ? null : await this.ground.cluster.pod(`sandlot-${found.sandboxId}`);
    if (pod === null) throw new Error(`${thread} has no pod`);
    const { metadata, status } = podOf(pod);
    return { name: metadata.name, uid: metadata.uid, address: status.podIP };
  }

  override async atUse(thread: string, lease: Lease): Promise<void> {
    await this.writers.use(thread, lease);
  }

  override async end(thread: string): Promise<void> {
    await super.end(thread);
    this.writers.forget(thread);
  }

  protected async leftovers(meant: readonly SandboxName[]): Promise<readonly string[]> {
    const isMeant = (text: string) => meant.some(({ sandboxId }) => text.includes(sandboxId));
    return (await this.#things()).filter((name) => !name.includes(this.#other) && !isMeant(name)).toSorted();
  }

  /** Objects and files of all fleets of the run. Those of the neighbour's name its fleet. */
  async #things(): Promise<readonly string[]> {
    const objects = (await this.ground.cluster.objects())
      .filter(({ name }) => name !== `pods ${BYSTANDER}`)
      .map(({ name, fleet }) => (fleet === this.#other ? `${name} of ${fleet}` : name));
    return [...objects, ...filesOf(this.ground.root)];
  }

  get #other(): string {
    return `${this.fleetId}-other`;
  }

  protected async openBystander(): Promise<void> {
    const { api, node } = this.ground.cluster;
    const securityContext = {
      ...{ runAsNonRoot: true, runAsUser: 10_001, allowPrivilegeEscalation: false },
      ...{ capabilities: { drop: ["ALL"] }, seccompProfile: { type: "RuntimeDefault" } },
    };
    const container = {
      name: "main",
      image: IMAGE,
      imagePullPolicy: "Never",
      command: ["sleep", "100000"],
      securityContext,
    };
    const tolerations = [{ key: "sandlot.dev/chaos", operator: "Exists" }];
    const spec = {
      ...{ nodeName: node, restartPolicy: "Never", tolerations, containers: [container] },
      automountServiceAccountToken: false,
    };
    await api.create("pods", { apiVersion: "v1", kind: "Pod", metadata: { name: BYSTANDER }, spec }, NEVER);
    await until("the bystander runs", async () => ((await this.bystanderSince()) === "" ? null : true));
  }

  /** Nothing but this code makes it again. */
  protected override async afterTheEnd(after: string): Promise<void> {
    await this.ground.cluster.deletePod(BYSTANDER, 0);
    await until("the bystander is gone", async () =>
      (await this.ground.cluster.pod(BYSTANDER)) === null ? true : null,
    );
    await this.openBystander();
    await super.afterTheEnd(after);
  }

  protected async bystanderSince(): Promise<string> {
    const found = await this.ground.cluster.pod(BYSTANDER);
    const pod = found === null ? null : podOf(found);
    return pod?.status.phase === "Running" ? pod.metadata.uid : "";
  }

  protected async closeBystander(): Promise<void> {
    const { cluster, link, store } = this.ground;
    await cluster.deletePod(BYSTANDER, 0);
    const left = await until(
      "everything is gone",
      async () => ((await this.#things()).length === 0 ? [] : null),
      GONE_MS,
    ).catch(() => this.#things());
    if (left.length > 0) this.tally.violated(`left when everything was closed: ${left.join(", ")}`);
    link.close();
    await store.dispose();
    await cluster.close();
  }
}

function linkedKubeconfig({ cluster, link, place }: Ground): string {
  return writeKubeconfig(cluster.kubeconfig, cluster.api.server, link.url, join(place, "kubeconfig"));
}

/** Threads and slots on the volume, with what is being made or was put aside. The paths without content are kept. */
function filesOf(root: string): readonly string[] {
  return entries(root).flatMap((fleet) =>
    ["t", "s", "released", "new", "quarantine", "trash"].flatMap((folder) =>
      entries(join(root, fleet, folder)).flatMap((name) => {
        const below = folder === "t" ? entries(join(root, fleet, folder, name)) : [""];
        return below.filter((file) => !file.startsWith("gone.")).map(() => `volume ${fleet}/${folder}/${name}`);
      }),
    ),
  );
}

function entries(path: string): readonly string[] {
  return existsSync(path) ? readdirSync(path) : [];
}
