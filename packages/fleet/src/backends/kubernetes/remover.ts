/**
 * Ends pods, and lets go of them once it is proved that nothing runs.
 *
 *   DELETE (uid, grace) ──▶ proof ──▶ slot released ──▶ finalizer off ──▶ the object is gone, and its Secret with it
 *                                        └ occupied: the dead object stays, with its markers, until the workspace has left
 *
 * Invariants
 * - The finalizer comes off after proof only. It is what keeps the object while processes may run.
 * - Every request names the uid: another object under the name is never touched.
 */

import { type EngineRef, isoTime, SandlotError } from "@sandlot/contract";
import type { Place } from "../../backend/backend.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { type Api, isInDoubt, type PatchStep } from "./api/api.ts";
import type { PodLiveness } from "./liveness.ts";
import { CONFIRMED_DEAD, PROOF_FINALIZER, parseLabels, parseRef } from "./pod/names.ts";
import { isBeingDeleted, type Pod, podOf } from "./pod/pod.ts";
import { proofOf } from "./pod/proof.ts";
import type { PodWorkspaces } from "./workspaces/pod-workspaces.ts";

export interface RemoverParts {
  readonly api: Api;
  readonly world: World;
  readonly liveness: PodLiveness;
  readonly workspaces: Pick<PodWorkspaces, "release" | "isOccupied">;
  /** The end of this pod is wanted. */
  ending(uid: string): void;
  /** Calls back at the next change of the pod. */
  onChange(name: string, changed: () => void): () => void;
}

/** The kubelet looks once a second. Zero would remove the object without the kubelet's word. */
const GRACE_SECONDS = 2;
const LOOK_MS = 100;
const LOOK_MAX_MS = 1_000;
const PATCH_ATTEMPTS = 10;

export class Remover {
  readonly #parts: RemoverParts;

  constructor(parts: RemoverParts) {
    this.#parts = parts;
  }

  async destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    const parsed = parseRef(ref);
    if (parsed === null) throw new SandlotError("sandbox_not_found", { id: ref });
    await this.end(parsed.name, parsed.uid, signal);
  }

  /** Resolves when nothing of this very pod runs any more. */
  async end(name: string, uid: string, signal: AbortSignal): Promise<void> {
    const { ending, api } = this.#parts;
    ending(uid);
    let pod = await this.#pod(name, uid, signal);
    for (let attempt = 1; pod !== null && !isBeingDeleted(pod); attempt++) {
      const removed = await api.remove("pods", name, { uid, gracePeriodSeconds: GRACE_SECONDS }, signal);
      pod = removed === null ? await this.#pod(name, uid, signal) : podOf(removed);
      // A conflict with another change of the same pod: it is still there, and nothing ends it.
      if (attempt >= PATCH_ATTEMPTS) break;
    }
    const dead = await this.#proved(name, uid, pod, signal);
    if (dead !== null) await this.letGoUnlessOccupied(dead, signal);
  }

  /** `false`: a workspace is in its slot, so it stays. */
  async letGoUnlessOccupied(pod: Pod, signal: AbortSignal): Promise<boolean> {
    const place = placeOf(pod);
    if (place !== null && (await this.#parts.workspaces.release(place)) === "occupied") return false;
    await this.letGo(pod, signal);
    await this.#dropSecret(pod, signal);
    return true;
  }

  /** The cluster would remove it with the pod object, but later: its markers must be gone now. */
  async #dropSecret({ metadata: { name } }: Pod, signal: AbortSignal): Promise<void> {
    const { api } = this.#parts;
    const secret = await api.get("secrets", name, signal);
    if (secret !== null) await api.remove("secrets", name, { uid: secret.metadata.uid }, signal);
  }

  /** Takes the finalizer off, when nothing of it runs any more. The kubelet touches such pods, so only uid and entry are compared, not the version. */
  async letGo(pod: Pod, signal: AbortSignal): Promise<void> {
    const { api } = this.#parts;
    const { name, uid } = pod.metadata;
    let now: Pod | null = pod;
    for (let attempt = 1; now !== null; attempt++) {
      const index: number = now.metadata.finalizers.indexOf(PROOF_FINALIZER);
      if (index < 0) return this.#removeUnconfirmed(now, signal);
      const path = `/metadata/finalizers/${index}`;
      const steps: PatchStep[] = [
        { op: "test", path: "/metadata/uid", value: uid },
        { op: "test", path, value: PROOF_FINALIZER },
        { op: "remove", path },
      ];
      try {
        await api.patch("pods", name, steps, signal);
        return await this.#removeUnconfirmed(now, signal);
      } catch (error) {
        signal.throwIfAborted();
        if (!isInDoubt(error) || attempt >= PATCH_ATTEMPTS) throw error;
        now = await this.#pod(name, uid, signal);
      }
    }
  }

  /** The cluster keeps a deleted pod until its kubelet answers. Without a machine none does. */
  async #removeUnconfirmed(pod: Pod, signal: AbortSignal): Promise<void> {
    const { name, uid } = pod.metadata;
    const proof = proofOf(pod);
    if (proof === null || proof === "confirmed")
      await this.#parts.api.remove("pods", name, { uid, gracePeriodSeconds: 0 }, signal);
  }

  /** An administrator's word that nothing of the pod runs. */
  async confirm(ref: EngineRef, by: string, signal: AbortSignal): Promise<void> {
    const { api, world } = this.#parts;
    const parsed = parseRef(ref);
    if (parsed === null) throw new SandlotError("sandbox_not_found", { id: ref });
    const { name, uid } = parsed;
    const pod = await this.#pod(name, uid, signal);
    if (pod === null) return;
    const said = `${isoTime(world.wallMs())} ${by}`.slice(0, 256);
    const hasAny = Object.keys(pod.metadata.annotations).length > 0;
    const key = CONFIRMED_DEAD.replaceAll("/", "~1");
    const steps: PatchStep[] = [
      { op: "test", path: "/metadata/uid", value: uid },
      hasAny
        ? { op: "add", path: `/metadata/annotations/${key}`, value: said }
        : { op: "add", path: "/metadata/annotations", value: { [CONFIRMED_DEAD]: said } },
    ];
    await api.patch("pods", name, steps, signal);
    await this.end(name, uid, signal);
  }

  async #proved(name: string, uid: string, first: Pod | null, signal: AbortSignal): Promise<Pod | null> {
    const { liveness } = this.#parts;
    let pod = first;
    for (let waitMs = LOOK_MS; pod !== null; waitMs = Math.min(waitMs * 2, LOOK_MAX_MS)) {
      if (await liveness.isDead(pod, signal)) return pod;
      await this.#changed(name, waitMs, signal);
      pod = await this.#pod(name, uid, signal);
    }
    return null;
  }

  /** Until the watch has news of the pod, or this long. */
  async #changed(name: string, waitMs: number, signal: AbortSignal): Promise<void> {
    const news = new AbortController();
    const stop = this.#parts.onChange(name, () => news.abort());
    try {
      await sleep(this.#parts.world, waitMs, AbortSignal.any([signal, news.signal])).catch(() => {});
      signal.throwIfAborted();
    } finally {
      stop();
    }
  }

  /** `null`: that very pod is gone. */
  async #pod(name: string, uid: string, signal: AbortSignal): Promise<Pod | null> {
    const found = await this.#parts.api.get("pods", name, signal);
    return found === null || found.metadata.uid !== uid ? null : podOf(found);
  }
}

function placeOf(pod: Pod): Place | null {
  return parseLabels(pod.metadata.labels)?.place ?? null;
}
