/**
 * The liveness of a pod, from quorum reads of the API server. Without an answer it is `unknown`: nothing is ended on a
 * guess.
 */

import { type EngineRef, isSandlotError } from "@sandlot/contract";
import type { Liveness } from "../../world/world.ts";
import type { Api } from "./api/api.ts";
import type { KubernetesConfig } from "./config.ts";
import { isTrustedDead, nodeState } from "./node-loss.ts";
import { parseRef } from "./pod/names.ts";
import { isBeingDeleted, isTerminal, type Pod, podOf } from "./pod/pod.ts";
import { livenessOf, mayAnswer, proofOf } from "./pod/proof.ts";

export interface LivenessParts {
  readonly api: Api;
  readonly nodeLoss: KubernetesConfig["nodeLoss"];
  /** Whether the daemon of this pod answers to its key. */
  answers(pod: Pod, signal: AbortSignal): Promise<boolean>;
}

export class PodLiveness {
  readonly #parts: LivenessParts;

  constructor(parts: LivenessParts) {
    this.#parts = parts;
  }

  async probe(ref: EngineRef, signal: AbortSignal): Promise<Liveness> {
    const parsed = parseRef(ref);
    if (parsed === null || parsed.namespace !== this.#parts.api.namespace) return "unknown";
    try {
      const found = await this.#parts.api.get("pods", parsed.name, signal);
      // Only proof, or a person, takes the finalizer off. Another uid is another object.
      if (found === null || found.metadata.uid !== parsed.uid) return "dead";
      return await this.of(podOf(found), signal);
    } catch (error) {
      signal.throwIfAborted();
      if (isSandlotError(error, "engine_unavailable")) return "unknown";
      throw error;
    }
  }

  async of(pod: Pod, signal: AbortSignal): Promise<Liveness> {
    const seen = livenessOf(pod);
    if (seen !== "unknown") return seen;
    if (mayAnswer(pod)) return (await this.#parts.answers(pod, signal)) ? "alive" : "unknown";
    return (await this.isDead(pod, signal)) ? "dead" : "unknown";
  }

  /** Proof that nothing of it runs, or trust in the word about its node. */
  async isDead(pod: Pod, signal: AbortSignal): Promise<boolean> {
    if (proofOf(pod) !== null) return true;
    const mayBeLost = isBeingDeleted(pod) || isTerminal(pod);
    if (!mayBeLost || pod.spec.nodeName === "" || this.#parts.nodeLoss === "confirm") return false;
    return isTrustedDead(await nodeState(this.#parts.api, pod, signal));
  }
}
