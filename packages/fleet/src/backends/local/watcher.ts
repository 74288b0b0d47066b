/**
 * Reports deaths. It listens to the pulse of every living object, and watches the directory of objects to find those of
 * other processes. It does not poll.
 *
 * Invariants
 * - Each listener that was registered at a death gets it once, and only after the object is seen to be dead.
 * - A failed watch is reported as `resync`: listeners must list again.
 */

import { type FSWatcher, watch } from "node:fs";
import type { EngineEvent } from "../../backend/backend.ts";
import { type EngineListener, EngineListeners } from "../../backend/engine-listeners.ts";
import { type Layout, type ObjectName, pulsePath } from "../../host/layout.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { listenToPulse } from "./engine/pulse.ts";
import type { ObjectLiveness } from "./objects/object-liveness.ts";
import type { LocalObject, ObjectStore } from "./objects/object-store.ts";

/** A pulse stops a moment before the last process of its sandbox is gone. */
const LOOK_MS = 2;
const LOOKS_MAX = 500;

export class Watcher {
  readonly #layout: Layout;
  readonly #objects: ObjectStore;
  readonly #liveness: ObjectLiveness;
  readonly #world: World;
  readonly #listeners = new EngineListeners({ begin: () => this.#begin(), end: () => this.#end() });
  /** For each object, the function that stops listening. */
  readonly #pulses = new Map<ObjectName, () => void>();
  readonly #dead = new Set<ObjectName>();
  #directory: FSWatcher | null = null;

  constructor(layout: Layout, objects: ObjectStore, liveness: ObjectLiveness, world: World) {
    this.#layout = layout;
    this.#objects = objects;
    this.#liveness = liveness;
    this.#world = world;
  }

  add(listener: EngineListener): () => void {
    return this.#listeners.add(listener);
  }

  stop(): void {
    this.#listeners.clear();
  }

  #end(): void {
    this.#directory?.close();
    this.#directory = null;
    for (const stop of this.#pulses.values()) stop();
    this.#pulses.clear();
    this.#dead.clear();
  }

  #begin(): void {
    try {
      const directory = watch(this.#layout.objects, { persistent: false }, (_, name) => {
        if (name === null) this.#resync();
        else if (!name.startsWith(".")) void this.#look(name, true);
      });
      directory.on("error", () => this.#resync());
      this.#directory = directory;
    } catch {
      // Too many watches on this machine: only lists then find objects of other processes.
      this.#resync();
    }
    void this.#lookAtAll();
  }

  async #lookAtAll(): Promise<void> {
    try {
      for (const name of await this.#objects.names()) await this.#look(name, false);
    } catch {
      this.#resync();
    }
  }

  #resync(): void {
    this.tell({ type: "resync" });
  }

  /** Listens to a living object; reports one that has died since it appeared. */
  async #look(name: ObjectName, isNews: boolean): Promise<void> {
    const object = await this.#objects.get(name).catch(() => null);
    if (object === null) {
      this.#forget(name);
      return;
    }
    if (this.#listeners.size === 0 || object.process === null || object.isRemains) return;
    if (this.#liveness.of(object) === "dead") {
      if (isNews) this.#died(object);
    } else this.#listen(object);
  }

  #listen(object: LocalObject): void {
    const { name } = object;
    if (this.#pulses.has(name)) return;
    try {
      const stop = listenToPulse(pulsePath(this.#layout, name), () => {
        this.#pulses.delete(name);
        void this.#stopped(object);
      });
      this.#pulses.set(name, stop);
    } catch {
      // It was removed meanwhile.
      void this.#stopped(object);
    }
  }

  async #stopped(object: LocalObject): Promise<void> {
    for (let looks = 0; looks < LOOKS_MAX; looks++) {
      if (this.#liveness.of(object) === "dead") return this.#died(object);
      await sleep(this.#world, LOOK_MS, undefined, { background: true });
    }
    this.#resync();
  }

  #died({ name, ref, record }: LocalObject): void {
    if (this.#dead.has(name)) return;
    this.#dead.add(name);
    this.tell({ type: "died", ref, sandboxId: record.labels.sandboxId });
  }

  #forget(name: ObjectName): void {
    this.#dead.delete(name);
  }

  /** Also for events from other sources. */
  tell(event: EngineEvent): void {
    this.#listeners.tell(event);
  }
}
