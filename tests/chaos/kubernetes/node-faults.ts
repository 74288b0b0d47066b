/**
 * Faults of a node. Its kubelet is stopped, so nothing that the cluster is told about it is true any more, while its
 * containers run on. Held leases go on, and a thread whose pod others have force-deleted gets no second sandbox before
 * the kubelet proves that the first has ended. With the way to the pod cut as well, calls end with an error of ours.
 */

import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import type { KubernetesEnvironment } from "./kubernetes-environment.ts";
import { held } from "./pod-faults.ts";

export const NODE_FAULTS = ["stopped", "not ready", "force-deleted", "unreachable", "off"] as const;
type NodeFault = (typeof NODE_FAULTS)[number];

const STOPPED_MS = 15_000;
const EXEC_MS = 45_000;

export async function nodeFault(environment: KubernetesEnvironment, kind: NodeFault, thread: string): Promise<void> {
  const { cluster } = environment.ground;
  const act = async () => {
    try {
      return await ACTS[kind](environment, thread);
    } finally {
      cluster.startNode();
      await cluster.untilNode(true);
    }
  };
  await environment.fault(`a node's kubelet stopped: ${kind}`, act, { endsEverything: kind === "off" });
}

const ACTS: Readonly<Record<NodeFault, (environment: KubernetesEnvironment, thread: string) => Promise<number>>> = {
  /** Shorter than anything notices. */
  async stopped(environment, thread) {
    const lease = await held(environment, thread);
    environment.ground.cluster.stopNode();
    const creating = environment.acquire({ thread: `${thread}-new` });
    await goesOn(environment, lease, STOPPED_MS);
    environment.ground.cluster.startNode();
    const since = performance.now();
    await (await creating)?.release();
    await environment.usable(`${thread}-new`, since, null);
    await environment.end(`${thread}-new`);
    return ended(environment, thread, lease, since);
  },
  /** The control plane turns the pods not ready, and taints the node. */
  async "not ready"(environment, thread) {
    const { cluster } = environment.ground;
    const lease = await held(environment, thread);
    const { generation } = lease;
    cluster.stopNode();
    await cluster.untilNode(false);
    await goesOn(environment, lease, 2_000);
    if (lease.generation !== generation) environment.tally.violated("a silent node ended a lease");
    cluster.startNode();
    return ended(environment, thread, lease, performance.now());
  },
  /** `kubectl delete --force` while nothing can be proved. */
  async "force-deleted"(environment, thread) {
    const { cluster } = environment.ground;
    await (await held(environment, thread)).release();
    const { name } = await environment.podOf(thread);
    cluster.stopNode();
    await cluster.deletePod(name, 0);
    const early = await environment.acquire({ thread, timeoutMs: STOPPED_MS });
    if (early !== null) {
      // It may be the same sandbox, which still answers; another one would write beside it.
      await environment.writers.check(thread, early).catch(() => {});
      await early.release();
    }
    if ((await cluster.pod(name)) === null) environment.tally.violated(`${name} is gone without proof`);
    cluster.startNode();
    const usableMs = await environment.usable(thread, performance.now(), "mine");
    await environment.end(thread);
    return usableMs;
  },
  /** The way to the pod is cut as well: only the cluster's word is left, and that says nothing. */
  async unreachable(environment, thread) {
    const { cluster } = environment.ground;
    const lease = await held(environment, thread);
    const { address } = await environment.podOf(thread);
    cluster.stopNode();
    cluster.cutWayTo(address);
    try {
      const answered = lease.sandbox.exec("echo through", { timeoutMs: 5_000 });
      const answer = await environment.settles("a command over the cut", answered, EXEC_MS);
      if (answer !== undefined) environment.tally.violated("a command went over the cut");
      await lease.release();
      const other = await environment.acquire({ thread, timeoutMs: STOPPED_MS });
      await other?.release();
    } finally {
      cluster.restoreWayTo(address);
    }
    cluster.startNode();
    const usableMs = await environment.usable(thread, performance.now(), "mine");
    await environment.end(thread);
    return usableMs;
  },
  /** The machine is off: nothing of it runs, and an administrator says so (`out-of-service`). */
  async off(environment, thread) {
    const { cluster } = environment.ground;
    await (await held(environment, thread)).release();
    cluster.stopNode();
    await cluster.killPods();
    await cluster.untilNode(false);
    await cluster.setOutOfService(true);
    try {
      const away = await environment.acquire({ thread, timeoutMs: STOPPED_MS });
      await away?.release();
    } finally {
      await cluster.setOutOfService(false);
    }
    cluster.startNode();
    const usableMs = await environment.usable(thread, performance.now(), "mine");
    await environment.end(thread);
    return usableMs;
  },
};

/** A held lease works all the time. */
async function goesOn(environment: KubernetesEnvironment, lease: Awaited<ReturnType<typeof held>>, ms: number) {
  const deadline = performance.now() + ms;
  while (performance.now() < deadline) {
    const answer = await environment.settles("a command on a silent node", lease.sandbox.exec("echo on"), EXEC_MS);
    if (answer?.stdout !== "on\n") environment.tally.violated(`a held lease answered ${JSON.stringify(answer)}`);
    await sleep(500);
  }
}

async function ended(
  environment: KubernetesEnvironment,
  thread: string,
  lease: Awaited<ReturnType<typeof held>>,
  since: number,
): Promise<number> {
  const { ms } = await environment.used(thread, since, "mine", lease);
  await lease.release();
  await environment.end(thread);
  return ms;
}
