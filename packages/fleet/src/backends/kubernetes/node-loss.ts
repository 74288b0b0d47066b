/**
 * The word about a lost node. It is trust instead of proof: containers of a node whose object is gone, or that carries
 * the taint `out-of-service`, run on while the machine does. Kubernetes itself judges them the same, so an operator who
 * deletes or taints a node must have switched it off.
 *
 * Without permission to read nodes nothing is trusted, and only `sandlot confirm-dead` ends such a sandbox.
 */

import { isSandlotError } from "@sandlot/contract";
import { z } from "zod";
import type { Api } from "./api/api.ts";
import type { Pod } from "./pod/pod.ts";

const nodeSchema = z.looseObject({
  spec: z.looseObject({ taints: z.array(z.looseObject({ key: z.string() })).nullish() }).prefault({}),
  status: z
    .looseObject({
      conditions: z
        .array(z.looseObject({ type: z.string(), status: z.string(), lastTransitionTime: z.string().nullish() }))
        .nullish(),
    })
    .prefault({}),
});

const OUT_OF_SERVICE = "node.kubernetes.io/out-of-service";

export type NodeState =
  | { readonly kind: "gone" | "out-of-service" | "ready" | "unreadable" }
  | { readonly kind: "silent"; readonly since: string | null };

export async function nodeState(api: Api, pod: Pod, signal: AbortSignal): Promise<NodeState> {
  try {
    const found = await api.get("nodes", pod.spec.nodeName, signal);
    if (found === null) return { kind: "gone" };
    const { spec, status } = nodeSchema.parse(found);
    const ready = status.conditions?.find(({ type }) => type === "Ready");
    if (ready?.status === "True") return { kind: "ready" };
    if (spec.taints?.some(({ key }) => key === OUT_OF_SERVICE)) return { kind: "out-of-service" };
    return { kind: "silent", since: ready?.lastTransitionTime ?? null };
  } catch (error) {
    if (isSandlotError(error, "engine_forbidden")) return { kind: "unreadable" };
    throw error;
  }
}

export function isTrustedDead({ kind }: NodeState): boolean {
  return kind === "gone" || kind === "out-of-service";
}
