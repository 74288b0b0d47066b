/**
 * Faults of one pod, by others than the fleet: deleted, force-deleted, evicted, its containers killed on the node. While
 * it is leased, and while it is parked. Running commands report it, the next use works and has the files.
 */

import { performance } from "node:perf_hooks";
import type { Lease } from "../../../packages/fleet/src/fleet.ts";
import { processesOf, signal } from "./cluster.ts";
import type { KubernetesEnvironment } from "./kubernetes-environment.ts";

const TOLD_MS = 60_000;
export const POD_FAULTS = ["deleted", "force-deleted", "evicted", "killed inside", "frozen and killed"] as const;
type PodFault = (typeof POD_FAULTS)[number];

export async function podFault(
  environment: KubernetesEnvironment,
  kind: PodFault,
  isLeased: boolean,
  thread: string,
): Promise<void> {
  const name = `a ${isLeased ? "leased" : "parked"} pod ${kind}`;
  await environment.fault(name, () => (isLeased ? whileLeased : whileParked)(environment, kind, thread));
}

async function whileLeased(environment: KubernetesEnvironment, kind: PodFault, thread: string): Promise<number> {
  const lease = await held(environment, thread);
  const { generation } = lease;
  const running = lease.sandbox.exec("sleep 100; echo through").then(
    () => "went on",
    (error: unknown) => (error as { readonly code?: string }).code,
  );
  await strike(environment, kind, thread);
  const since = performance.now();
  const told = await environment.settles("a command under way", running, TOLD_MS);
  if (told !== "sandbox_lost") environment.tally.violated(`a command under way ended with ${told}`);
  const { ms } = await environment.used(thread, since, "mine", lease);
  if (lease.generation === generation) environment.tally.violated("the generation is the same");
  await lease.release();
  await environment.end(thread);
  return ms;
}

async function whileParked(environment: KubernetesEnvironment, kind: PodFault, thread: string): Promise<number> {
  await (await held(environment, thread)).release();
  await strike(environment, kind, thread);
  const usableMs = await environment.usable(thread, performance.now(), "mine");
  await environment.end(thread);
  return usableMs;
}

/** A lease whose sandbox has a file, a writer and an acknowledged line. */
export async function held(environment: KubernetesEnvironment, thread: string): Promise<Lease> {
  const lease = await environment.fleet.acquire({ thread });
  await lease.sandbox.exec("echo mine > note");
  await environment.used(thread, performance.now(), "mine", lease);
  return lease;
}

async function strike(environment: KubernetesEnvironment, kind: PodFault, thread: string): Promise<void> {
  const { cluster } = environment.ground;
  const { name, uid } = await environment.podOf(thread);
  if (kind === "deleted") return cluster.deletePod(name);
  if (kind === "force-deleted") return cluster.deletePod(name, 0);
  if (kind === "evicted") return cluster.evictPod(name);
  const pids = processesOf(uid);
  if (pids.length === 0) throw new Error(`${name} has no process here`);
  if (kind === "frozen and killed") for (const pid of pids) signal(pid, "SIGSTOP");
  for (const pid of pids) signal(pid, "SIGKILL");
}
