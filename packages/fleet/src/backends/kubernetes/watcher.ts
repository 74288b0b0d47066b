/**
 * Reports deaths: one watch of the fleet's pods for all listeners.
 *
 *   list ──▶ watch from its version ──▶ ends cleanly: watch again ──▶ …
 *     ▲          │ too old, or two broken rounds: event resync
 *     └──────────┘
 *
 * Invariants
 * - A death is reported at proof, with its cause, once for each listener that was registered then.
 * - The API server sends a bookmark every minute, so a longer silence is a dead connection.
 * - After a list that was not the first, listeners must list again: events may have been missed.
 */

import type { DeathCause, FleetId } from "@sandlot/contract";
import type { EngineEvent } from "../../backend/backend.ts";
import { type EngineListener, EngineListeners } from "../../backend/engine-listeners.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Api, WatchEvent } from "./api/api.ts";
import { causeOfDeath } from "./pod/cause.ts";
import { fleetSelector, formatRef, parseLabels } from "./pod/names.ts";
import { isBeingDeleted, type Pod, podOf } from "./pod/pod.ts";
import { proofOf } from "./pod/proof.ts";
import type { PodCache } from "./pod-cache.ts";

const SILENCE_MS = 75_000;
const ROUND_MIN_SECONDS = 240;
const ROUND_SPREAD_SECONDS = 60;
const BROKEN_ROUNDS_MAX = 2;
const RETRY_MS = 200;
const RETRY_MAX_MS = 5_000;
/** Pods whose death was reported. Their last events come soon after. */
const REMEMBERED_MAX = 8_192;

export class Watcher {
  readonly #api: Api;
  readonly #fleetId: FleetId;
  readonly #world: World;
  readonly #cache: PodCache;
  readonly #listeners = new EngineListeners({ begin: () => this.#begin(), end: () => this.#end() });
  readonly #told = new Set<string>();
  /** Pods that this process has asked the cluster to end. */
  readonly #asked = new Set<string>();
  /** Why this process ends a pod, where the cluster cannot know. */
  readonly #causes = new Map<string, DeathCause>();
  #subscription: AbortController | null = null;

  constructor(api: Api, fleetId: FleetId, world: World, cache: PodCache) {
    this.#api = api;
    this.#fleetId = fleetId;
    this.#world = world;
    this.#cache = cache;
  }

  add(listener: EngineListener): () => void {
    return this.#listeners.add(listener);
  }

  /** The end of this pod is wanted, so its cause is not a lack of memory. */
  ending(uid: string): void {
    remember(this.#asked, uid);
  }

  /** The end of this pod is wanted for a reason that its last state does not show. */
  because(uid: string, cause: DeathCause): void {
    this.#causes.set(uid, cause);
  }

  stop(): void {
    this.#listeners.clear();
  }

  #end(): void {
    this.#subscription?.abort(new Error("there is no listener any more"));
    this.#subscription = null;
    this.#cache.isCurrent = false;
  }

  /** Also for events from other sources. */
  tell(event: EngineEvent): void {
    this.#listeners.tell(event);
  }

  #begin(): void {
    const controller = new AbortController();
    this.#subscription = controller;
    void this.#follow(controller.signal);
  }

  async #follow(signal: AbortSignal): Promise<void> {
    let version: string | null = null;
    let isFirst = true;
    let broken = 0;
    let waitMs = RETRY_MS;
    while (!signal.aborted) {
      try {
        if (version === null) {
          version = await this.#list(signal);
          if (!isFirst) this.tell({ type: "resync" });
          isFirst = false;
        }
        for await (const event of this.#api.watch("pods", this.#query(version), signal)) {
          if (event.type === "ERROR") {
            version = null;
            break;
          }
          version = event.object.metadata.resourceVersion || version;
          this.#hear(event);
          waitMs = RETRY_MS;
          broken = 0;
        }
        if (version !== null) continue;
      } catch {
        broken += 1;
      }
      if (signal.aborted) return;
      this.#cache.isCurrent = false;
      if (broken >= BROKEN_ROUNDS_MAX) version = null;
      await sleep(this.#world, waitMs, signal, { background: true }).catch(() => {});
      waitMs = Math.min(waitMs * 2, RETRY_MAX_MS);
    }
  }

  #query(resourceVersion: string) {
    const timeoutSeconds = ROUND_MIN_SECONDS + Math.floor(this.#world.random() * ROUND_SPREAD_SECONDS);
    return { labelSelector: fleetSelector(this.#fleetId), resourceVersion, timeoutSeconds, silenceMs: SILENCE_MS };
  }

  async #list(signal: AbortSignal): Promise<string> {
    const { items, resourceVersion } = await this.#api.list(
      "pods",
      { labelSelector: fleetSelector(this.#fleetId) },
      signal,
    );
    const pods = items.map(podOf);
    for (const { name, uid, labels } of this.#cache.replace(pods)) this.#died(uid, name, labels.sandboxId);
    for (const pod of pods) this.#judge(pod);
    this.#cache.isCurrent = true;
    return resourceVersion;
  }

  #hear(event: Exclude<WatchEvent, { readonly type: "ERROR" }>): void {
    this.#cache.isCurrent = true;
    if (event.type === "BOOKMARK") return;
    const pod = podOf(event.object);
    if (event.type !== "DELETED") {
      this.#cache.put(pod);
      this.#judge(pod);
      return;
    }
    const { name, uid } = pod.metadata;
    if (this.#cache.get(name)?.uid === uid) this.#cache.remove(name);
    const labelled = parseLabels(pod.metadata.labels);
    if (labelled !== null) this.#died(uid, name, labelled.labels.sandboxId, this.#causeOf(pod));
  }

  #judge(pod: Pod): void {
    const labelled = parseLabels(pod.metadata.labels);
    if (labelled === null || proofOf(pod) === null) return;
    this.#died(pod.metadata.uid, pod.metadata.name, labelled.labels.sandboxId, this.#causeOf(pod));
  }

  #causeOf(pod: Pod): DeathCause {
    return causeOfDeath(pod, { wasAsked: this.#asked.has(pod.metadata.uid) || isBeingDeleted(pod) });
  }

  #died(uid: string, name: string, sandboxId: Parameters<typeof diedOf>[1], cause?: DeathCause): void {
    if (this.#told.has(uid)) return;
    remember(this.#told, uid);
    const ref = formatRef({ namespace: this.#api.namespace, name, uid });
    this.tell(diedOf(ref, sandboxId, this.#causes.get(uid) ?? cause));
    this.#causes.delete(uid);
  }
}

function diedOf(
  ref: Extract<EngineEvent, { type: "died" }>["ref"],
  sandboxId: Extract<EngineEvent, { type: "died" }>["sandboxId"],
  cause: DeathCause | undefined,
): EngineEvent {
  return { type: "died", ref, sandboxId, ...(cause !== undefined && { cause }) };
}

function remember(set: Set<string>, uid: string): void {
  set.add(uid);
  const [oldest] = set;
  if (set.size > REMEMBERED_MAX && oldest !== undefined) set.delete(oldest);
}
