/**
 * Why a pod ended, from what the API server shows of it at proof. Pure.
 *
 * The order matters: a deletion sets its own conditions, and a command that was once killed for memory leaves its mark on
 * a container that later ends by itself.
 */

import type { DeathCause } from "@sandlot/contract";
import { conditionOf, type Pod } from "./pod.ts";

/** Ended by SIGKILL. */
const KILLED = 137;

/** The reasons of the condition `DisruptionTarget`, which is set before the deletion. */
const DISRUPTIONS: Readonly<Record<string, DeathCause>> = {
  EvictionByEvictionAPI: "drained",
  PreemptionByScheduler: "preempted",
  DeletionByTaintManager: "node-lost",
  DeletionByPodGC: "node-lost",
  TerminationByKubelet: "node-pressure",
};

export function causeOfDeath(pod: Pod, { wasAsked }: { readonly wasAsked: boolean }): DeathCause {
  const { status } = pod;
  const disruption = conditionOf(pod, "DisruptionTarget");
  if (status.reason === "DeadlineExceeded") return "deadline";
  if (status.reason === "Terminated" || status.reason === "NodeShutdown") return "node-shutdown";
  if (disruption?.status === "True") {
    const isShutdown = disruption.reason === "TerminationByKubelet" && /shutdown/i.test(disruption.message);
    return isShutdown ? "node-shutdown" : (DISRUPTIONS[disruption.reason] ?? "deleted");
  }
  // Without `DisruptionTarget` it is the pod's own limit, not the node's need.
  if (status.reason === "Evicted") return "disk-limit";
  if (status.reason === "NodeLost") return "node-lost";
  const ended = endOf(pod);
  if (ended?.reason === "OOMKilled" && ended.exitCode === KILLED && !wasAsked) return "out-of-memory";
  return wasDeletedBefore(pod, ended?.finishedAt) ? "deleted" : "exited";
}

function endOf({ status }: Pod) {
  return [...(status.containerStatuses ?? []), ...(status.initContainerStatuses ?? [])]
    .map(({ state }) => state.terminated)
    .find((one) => one !== undefined && one.reason !== "Completed");
}

/** `deletionTimestamp` is the moment of the DELETE plus the grace period. */
function wasDeletedBefore({ metadata }: Pod, finishedAt: string | null | undefined): boolean {
  if (typeof metadata.deletionTimestamp !== "string") return false;
  const graceMs = Number(metadata.deletionGracePeriodSeconds ?? 0) * 1_000;
  const asked = Date.parse(metadata.deletionTimestamp) - graceMs;
  const ended = Date.parse(finishedAt ?? "");
  // The API server's times have whole seconds.
  return Number.isNaN(ended) || asked <= ended + 1_000;
}
