/**
 * What this process last heard of each pod of the fleet: about a kilobyte each. It may be stale, but every pod in it did
 * exist. Makers wait on it, and lists that need not be consistent read it.
 */

import type { EngineObject } from "../../backend/backend.ts";
import type { Liveness } from "../../world/world.ts";
import { formatRef, type Labelled, parseLabels } from "./pod/names.ts";
import type { Pod } from "./pod/pod.ts";
import { livenessOf } from "./pod/proof.ts";

export interface CachedPod extends Labelled {
  readonly name: string;
  readonly uid: string;
  readonly podIP: string;
  readonly liveness: Liveness;
}

export class PodCache {
  readonly #namespace: string;
  readonly #pods = new Map<string, CachedPod>();
  readonly #waiting = new Map<string, Set<() => void>>();
  /** A watch keeps it current. */
  isCurrent = false;

  constructor(namespace: string) {
    this.#namespace = namespace;
  }

  get(name: string): CachedPod | undefined {
    return this.#pods.get(name);
  }

  names(): readonly string[] {
    return [...this.#pods.keys()];
  }

  /** `null` for a pod of other software. */
  put(pod: Pod): CachedPod | null {
    const cached = this.#of(pod);
    if (cached === null) return null;
    this.#pods.set(cached.name, cached);
    this.#changed(cached.name);
    return cached;
  }

  remove(name: string): void {
    this.#pods.delete(name);
    this.#changed(name);
  }

  /** The whole fleet as of one moment. Returns those that are gone since. */
  replace(pods: readonly Pod[]): readonly CachedPod[] {
    const before = new Map(this.#pods);
    this.#pods.clear();
    for (const pod of pods) this.put(pod);
    return [...before.values()].filter(({ name, uid }) => this.#pods.get(name)?.uid !== uid);
  }

  objects(): readonly EngineObject[] {
    return [...this.#pods.values()].map((cached) => this.objectOf(cached));
  }

  objectOf({ name, uid, labels, place, liveness }: CachedPod): EngineObject {
    return { ref: formatRef({ namespace: this.#namespace, name, uid }), labels, place, liveness };
  }

  /** The pod without keeping it. */
  describe(pod: Pod): CachedPod | null {
    return this.#of(pod);
  }

  /** Calls back at the next change of this pod. Returns a function that stops it. */
  onChange(name: string, changed: () => void): () => void {
    const all = this.#waiting.get(name) ?? new Set();
    this.#waiting.set(name, all.add(changed));
    return () => {
      all.delete(changed);
      if (all.size === 0 && this.#waiting.get(name) === all) this.#waiting.delete(name);
    };
  }

  #changed(name: string): void {
    for (const call of [...(this.#waiting.get(name) ?? [])]) call();
  }

  #of(pod: Pod): CachedPod | null {
    const labelled = parseLabels(pod.metadata.labels);
    if (labelled === null) return null;
    const { name, uid } = pod.metadata;
    return { ...labelled, name, uid, podIP: pod.status.podIP, liveness: livenessOf(pod) };
  }
}
