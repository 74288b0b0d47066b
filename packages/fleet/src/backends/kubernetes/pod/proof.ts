/**
 * What is true about a pod. Pure.
 *
 * Proof that nothing of a pod runs is one of:
 *   ended            the kubelet's word: a terminal phase, and every container of the spec `terminated`
 *   never-scheduled  it is being deleted, and no node was ever chosen
 *   confirmed        an administrator's word, in an annotation
 *
 * Nothing else is a sign. The pod collector sets the phase to `Failed` while containers run; a pod of a silent node may
 * have no statuses at all; and a phase goes back from `Failed` to `Running` when its kubelet returns.
 *
 * The word about a node that is gone is trust instead of proof; `node-loss.ts` has it.
 */

import type { Liveness } from "../../../world/world.ts";
import { CONFIRMED_DEAD, INTENT_GATE } from "./names.ts";
import { type ContainerStatus, conditionOf, isBeingDeleted, isGated, isTerminal, type Pod } from "./pod.ts";

export type Proof = "ended" | "never-scheduled" | "confirmed";

export function proofOf(pod: Pod): Proof | null {
  if (pod.metadata.annotations[CONFIRMED_DEAD] !== undefined) return "confirmed";
  if (isBeingDeleted(pod) && pod.spec.nodeName === "") return "never-scheduled";
  return isTerminal(pod) && haveAllEnded(pod) ? "ended" : null;
}

/** Without a request to the daemon: a pod that runs and is not ready may still respond. */
export function livenessOf(pod: Pod): Liveness {
  if (proofOf(pod) !== null) return "dead";
  if (isGated(pod, INTENT_GATE) || isBeingDeleted(pod)) return "unknown";
  const isReady = conditionOf(pod, "Ready")?.status === "True";
  return pod.status.phase === "Running" && isReady && !haveAllEnded(pod) ? "alive" : "unknown";
}

/** Whether only its daemon can tell that it lives. */
export function mayAnswer(pod: Pod): boolean {
  return pod.status.phase === "Running" && !isBeingDeleted(pod) && !haveAllEnded(pod) && pod.status.podIP !== "";
}

/** A missing status, or one that waits, is no proof: the kubelet reports late, and the collector reports for it. */
function haveAllEnded({ spec, status }: Pod): boolean {
  const init = statusesOf(spec.initContainers, status.initContainerStatuses);
  const isInitFailed = init.some((one) => (one?.state.terminated?.exitCode ?? 0) !== 0);
  const main = [
    ...statusesOf(spec.containers, status.containerStatuses),
    ...statusesOf(spec.ephemeralContainers, status.ephemeralContainerStatuses),
  ];
  const hasEnded = (one: ContainerStatus | undefined) => one?.state.terminated !== undefined;
  // Containers behind a failed init container never start.
  if (isInitFailed) {
    const failedAt = init.findIndex((one) => (one?.state.terminated?.exitCode ?? 0) !== 0);
    const later = [...init.slice(failedAt + 1), ...main];
    return (
      init.slice(0, failedAt + 1).every(hasEnded) &&
      later.every((one) => hasEnded(one) || one?.state.waiting !== undefined)
    );
  }
  return [...init, ...main].every(hasEnded);
}

function statusesOf(
  wanted: readonly { readonly name: string }[] | null | undefined,
  found: readonly ContainerStatus[] | null | undefined,
): readonly (ContainerStatus | undefined)[] {
  return (wanted ?? []).map(({ name }) => found?.find((one) => one.name === name));
}
