/** A fleet on the cluster of `tests/cluster`, in a namespace of its own, and `kubectl` for the other side. */

import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Fleet, Lease } from "../../../packages/fleet/src/fleet.ts";
import { openFleet } from "../../../packages/fleet/src/open-fleet.ts";
import { Cluster, IMAGE } from "../../../tests/chaos/kubernetes/cluster.ts";
import { runProgram } from "../../measuring/program.ts";

const MIB = 1024 * 1024;
const BLANKS = 2;
const NODE = "node1";
const POOLED_MS = 120_000;
const NEVER = new AbortController().signal;
export const POOLED = "pooled";

export class KubernetesStage {
  readonly fleet: Fleet;
  readonly #cluster: Cluster;
  readonly #place: string;
  readonly #kubectl: string;
  #serial = 0;

  constructor(fleet: Fleet, cluster: Cluster, place: string) {
    this.fleet = fleet;
    this.#cluster = cluster;
    this.#place = place;
    // `build.sh` puts it beside the cluster's state.
    const built = join(cluster.directory, "..", "bin", "kubectl");
    this.#kubectl = existsSync(built) ? built : "kubectl";
  }

  newName(): string {
    this.#serial += 1;
    return `bench-${this.#serial}`;
  }

  kubectl(...args: readonly string[]): Promise<void> {
    const { kubeconfig, namespace } = this.#cluster;
    return runProgram([this.#kubectl, "--kubeconfig", kubeconfig, "--namespace", namespace, ...args], process.env);
  }

  /** From nothing to the end of a first command in a bare pod. */
  async kubectlRun(name: string): Promise<void> {
    const securityContext = {
      ...{ runAsNonRoot: true, runAsUser: 10_001, allowPrivilegeEscalation: false },
      ...{ capabilities: { drop: ["ALL"] }, seccompProfile: { type: "RuntimeDefault" } },
    };
    const container = { name, image: IMAGE, imagePullPolicy: "Never", command: ["sleep", "100000"], securityContext };
    const spec = { nodeSelector: { "kubernetes.io/hostname": NODE }, containers: [container] };
    const overrides = JSON.stringify({ apiVersion: "v1", spec });
    await this.kubectl("run", name, `--image=${IMAGE}`, "--restart=Never", `--overrides=${overrides}`);
    await this.kubectl("wait", "--for=condition=Ready", `pod/${name}`, "--timeout=120s");
    await this.kubectlExec(name);
  }

  kubectlExec(name: string): Promise<void> {
    return this.kubectl("exec", name, "--", "true");
  }

  async kubectlDelete(name: string): Promise<void> {
    await this.kubectl("delete", "pod", name, "--grace-period=0", "--force");
    while ((await this.#cluster.pod(name)) !== null) await sleep(100);
  }

  async acquireAndExec(thread: string, blueprint: string): Promise<Lease> {
    const lease = await this.fleet.acquire({ thread, blueprint });
    const { exitCode } = await lease.sandbox.exec("true");
    if (exitCode !== 0) throw new Error(`the first command ended with ${exitCode}`);
    return lease;
  }

  /** Blanks that can be bound, and nothing that is still starting or ending: it would take the other side's time. */
  async settled(): Promise<void> {
    const deadline = performance.now() + POOLED_MS;
    for (;;) {
      const states = (await this.fleet.list()).map(({ state }) => state);
      const pods = (await this.#cluster.api.list("pods", {}, NEVER)).items;
      const isEnding = pods.some(({ metadata }) => typeof metadata.deletionTimestamp === "string");
      if (states.filter((state) => state === "blank").length === BLANKS && !states.includes("creating") && !isEnding)
        break;
      if (performance.now() > deadline) throw new Error(`the pool was not filled: ${states.join(", ")}`);
      await sleep(200);
    }
    await sleep(500);
  }

  async end(lease: Lease, thread: string): Promise<void> {
    await lease.release();
    await this.fleet.destroy({ thread }, { purge: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.fleet.close({ destroy: true });
    await this.#cluster.close();
    rmSync(this.#place, { recursive: true, force: true });
  }
}

export async function openStage(): Promise<KubernetesStage> {
  const cluster = await Cluster.open(process.env.SANDLOT_TEST_CLUSTER);
  if (typeof cluster === "string") throw new Error(cluster);
  const place = mkdtempSync(join(tmpdir(), "sl-bench-"));
  const home = join(place, "home");
  mkdirSync(home, { mode: 0o700 });
  const { claim, root } = await cluster.claim();
  const pod = { nodeSelector: { "kubernetes.io/hostname": NODE } };
  const fleet = await openFleet({
    ...{ home, backend: "kubernetes", limits: { max: 20 }, pool: { [POOLED]: BLANKS } },
    kubernetes: {
      ...{ kubeconfig: cluster.kubeconfig, namespace: cluster.namespace, connect: "pod-ip" },
      ...{ image: IMAGE, imagePullPolicy: "Never", networkPolicy: "external" },
      ...{ requestCpuCount: 0.01, requestMemoryBytes: 32 * MIB, memoryBytes: 256 * MIB },
      ...{ tmpBytes: 64 * MIB, homeBytes: 64 * MIB, diskBytes: 512 * MIB },
      workspaces: { mode: "claim", claim, root },
    },
    blueprints: { default: { pod }, [POOLED]: { pod, limits: { memoryBytes: 257 * MIB } } },
  });
  return new KubernetesStage(fleet, cluster, place);
}
