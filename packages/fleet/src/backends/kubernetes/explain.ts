/** What keeps the stop of a pod waiting, for a person. */

import type { EngineRef } from "@sandlot/contract";
import type { Api } from "./api/api.ts";
import { type NodeState, nodeState } from "./node-loss.ts";
import { PROOF_FINALIZER, parseLabels, parseRef } from "./pod/names.ts";
import { isBeingDeleted, podOf } from "./pod/pod.ts";
import { proofOf } from "./pod/proof.ts";
import type { KubernetesSettings } from "./settings.ts";

export async function explainStop(
  api: Api,
  { kubernetes }: KubernetesSettings,
  ref: EngineRef,
  signal: AbortSignal,
): Promise<string | null> {
  const parsed = parseRef(ref);
  const found = parsed === null ? null : await api.get("pods", parsed.name, signal);
  if (parsed === null || found === null || found.metadata.uid !== parsed.uid) return null;
  const pod = podOf(found);
  const { name } = pod.metadata;
  const { nodeName } = pod.spec;
  if (proofOf(pod) !== null) {
    if (!isBeingDeleted(pod)) return null;
    const place = parseLabels(pod.metadata.labels)?.place;
    if (place !== undefined && place !== "home")
      return `Nothing of pod ${name} runs any more; it stays until the thread's workspace has left its slot.`;
    return `Nothing of pod ${name} runs any more. If it stays, a webhook may refuse to remove the finalizer ${PROOF_FINALIZER}.`;
  }
  if (!isBeingDeleted(pod) || nodeName === "") return null;
  const ways = waysOut(await nodeState(api, pod, signal), nodeName, kubernetes.nodeLoss === "confirm");
  const since = pod.metadata.deletionTimestamp ?? "";
  return `Pod ${name} is being deleted since ${since}, and the kubelet of node ${nodeName} has not confirmed its end. ${ways}`;
}

function waysOut(state: NodeState, nodeName: string, needsConfirmation: boolean): string {
  const confirm = "run `sandlot confirm-dead SANDBOX` if you know that the machine is off";
  switch (state.kind) {
    case "ready":
      return "The node is ready; this takes at most the pod's grace period.";
    case "silent": {
      const since = state.since === null ? "" : ` since ${state.since}`;
      return (
        `The node is silent${since}. It ends when the node returns, when the node is deleted or tainted ` +
        `node.kubernetes.io/out-of-service (only with the machine off), or ${confirm}.`
      );
    }
    case "unreadable":
      return `This process may not read nodes. It ends when node ${nodeName} returns, or ${confirm}.`;
    default:
      return needsConfirmation
        ? `The node is ${state.kind === "gone" ? "deleted" : "out of service"}, and kubernetes.nodeLoss asks for a confirmation: ${confirm}.`
        : "The word about its node ends it soon.";
  }
}
