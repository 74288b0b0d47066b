/**
 * Reports deaths, pauses and out-of-memory kills: one subscription to the engine's events for all listeners, without
 * polling.
 *
 *   subscribed ── breaks ──▶ event: resync ──▶ subscribed again, from where it was
 *
 * Invariants
 * - Each listener that was registered at a death gets it once.
 * - After a break listeners must list again: the engine keeps only its last events, and a restarted engine keeps none.
 * - An engine that does not respond reports no death.
 */

import type { FleetId, SandboxId } from "@sandlot/contract";
import type { EngineEvent } from "../../backend/backend.ts";
import { type EngineListener, EngineListeners } from "../../backend/engine-listeners.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Motion } from "./container-pauses.ts";
import { eventSchema } from "./engine/answers.ts";
import type { Engine } from "./engine/engine.ts";
import { jsonLines } from "./engine/json-lines.ts";
import { fleetFilter, formatRef, type Labelled, parseLabels } from "./objects/labels.ts";

/** Gets the pauses and unpauses of containers. */
export interface MotionListener {
  heard(containerId: string, motion: Motion): void;
  /** Subscribed, for the first time or again: earlier events were missed. */
  look(): Promise<void>;
}

export interface WatcherParts {
  readonly motions: MotionListener;
  /** The kernel killed a process of a container for lack of memory. May come more than once for one command. */
  readonly onOutOfMemory: (labelled: Labelled) => void;
}

const MOTIONS: Readonly<Record<string, Motion>> = {
  pause: "paused",
  unpause: "running",
  die: "gone",
  destroy: "gone",
};

/** The events that end a container. `destroy` alone comes for one that never ran, or whose death was missed. */
const ENDS: ReadonlySet<string> = new Set(["die", "destroy"]);
const OUT_OF_MEMORY = "oom";
const RETRY_MS = 200;
const RETRY_MAX_MS = 5_000;
/** Containers whose death was reported. A `destroy` comes soon after its `die`. */
const REMEMBERED_MAX = 4_096;
const NANO = 1_000_000_000;

export class Watcher {
  readonly #engine: Engine;
  readonly #fleetId: FleetId;
  readonly #world: World;
  readonly #parts: WatcherParts;
  readonly #listeners = new EngineListeners({ begin: () => this.#begin(), end: () => this.#end() });
  readonly #told = new Set<string>();
  #subscription: AbortController | null = null;
  /** Seconds since 1970, by the engine's clock after its first event. */
  #since = 0;

  constructor(engine: Engine, fleetId: FleetId, world: World, parts: WatcherParts) {
    this.#engine = engine;
    this.#fleetId = fleetId;
    this.#world = world;
    this.#parts = parts;
  }

  add(listener: EngineListener): () => void {
    return this.#listeners.add(listener);
  }

  stop(): void {
    this.#listeners.clear();
  }

  #end(): void {
    this.#told.clear();
    this.#subscription?.abort(new Error("there is no listener any more"));
    this.#subscription = null;
  }

  #begin(): void {
    const controller = new AbortController();
    this.#subscription = controller;
    this.#since = this.#world.wallMs() / 1_000;
    void this.#follow(controller.signal);
  }

  async #follow(signal: AbortSignal): Promise<void> {
    let waitMs = RETRY_MS;
    while (!signal.aborted) {
      try {
        const stream = await this.#engine.events(fleetFilter(this.#fleetId), this.#since, signal);
        waitMs = RETRY_MS;
        void this.#parts.motions.look();
        for await (const event of jsonLines(stream, signal)) this.#hear(event);
      } catch {
        // After any failure listeners list again, and the watcher subscribes again.
      }
      if (signal.aborted) return;
      this.tell({ type: "resync" });
      await sleep(this.#world, waitMs, signal, { background: true }).catch(() => {});
      waitMs = Math.min(waitMs * 2, RETRY_MAX_MS);
      await this.#engine.identify().catch(() => {});
      // A restarted engine may have lost its events: `resync` comes once more when it responds.
      if (!signal.aborted) this.tell({ type: "resync" });
    }
  }

  #hear(line: unknown): void {
    const parsed = eventSchema.safeParse(line);
    if (!parsed.success) {
      this.tell({ type: "resync" });
      return;
    }
    const { Action, Actor, timeNano, time } = parsed.data;
    if (timeNano !== undefined) this.#since = timeNano / NANO;
    else if (time !== undefined) this.#since = time;
    const labelled = parseLabels(Actor.Attributes);
    if (labelled === null || labelled.labels.fleet !== this.#fleetId) return;
    const motion = MOTIONS[Action];
    if (motion !== undefined) this.#parts.motions.heard(Actor.ID, motion);
    if (Action === OUT_OF_MEMORY) this.#parts.onOutOfMemory(labelled);
    if (!ENDS.has(Action) || this.#told.has(Actor.ID)) return;
    this.#remember(Actor.ID);
    const ref = formatRef({ containerId: Actor.ID, name: labelled.name });
    this.tell({ type: "died", ref, sandboxId: labelled.labels.sandboxId as SandboxId });
  }

  #remember(containerId: string): void {
    this.#told.add(containerId);
    const [oldest] = this.#told;
    if (this.#told.size > REMEMBERED_MAX && oldest !== undefined) this.#told.delete(oldest);
  }

  /** Also for events from other sources. */
  tell(event: EngineEvent): void {
    this.#listeners.tell(event);
  }
}
