/**
 * Hearing of deaths, pauses and want of memory: one subscription to the engine's events for everybody who listens. Nothing is asked again and
 * again.
 *
 *   subscribed ── breaks ──▶ told: resync ──▶ subscribed again, from where it was
 *
 * Invariants
 * - A death is told once to each listener that was there when it happened.
 * - After a break whoever listens looks for himself: the engine remembers only its last events, and those of a restarted
 *   engine are gone.
 * - An engine that does not answer tells of no death.
 */

import type { FleetId, SandboxId } from "@sandlot/contract";
import type { EngineEvent } from "../../backend/backend.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Motion } from "./container-pauses.ts";
import { eventSchema } from "./engine/answers.ts";
import type { Engine } from "./engine/engine.ts";
import { jsonLines } from "./engine/json-lines.ts";
import { fleetFilter, formatRef, type Labelled, parseLabels } from "./objects/labels.ts";

type Listener = (event: EngineEvent) => void;

/** Who hears of what moves and what stands still. */
export interface MotionListener {
  heard(containerId: string, motion: Motion): void;
  /** Subscribed, for the first time or again: what was before was not heard. */
  look(): Promise<void>;
}

export interface WatcherParts {
  readonly motions: MotionListener;
  /** Something of a container was ended for want of memory. Told more than once for one command. */
  readonly onOutOfMemory: (labelled: Labelled) => void;
}

const MOTIONS: Readonly<Record<string, Motion>> = {
  pause: "paused",
  unpause: "running",
  die: "gone",
  destroy: "gone",
};

/** What ends a container. `destroy` alone comes for one that never ran, or whose death was missed. */
const ENDS: ReadonlySet<string> = new Set(["die", "destroy"]);
const OUT_OF_MEMORY = "oom";
const RETRY_MS = 200;
const RETRY_MAX_MS = 5_000;
/** Containers whose death was told. A `destroy` comes soon after its `die`. */
const REMEMBERED_MAX = 4_096;
const NANO = 1_000_000_000;

export class Watcher {
  readonly #engine: Engine;
  readonly #fleetId: FleetId;
  readonly #world: World;
  readonly #parts: WatcherParts;
  readonly #listeners = new Set<Listener>();
  readonly #told = new Set<string>();
  #subscription: AbortController | null = null;
  /** Seconds since 1970, by the engine's clock once it has told one. */
  #since = 0;

  constructor(engine: Engine, fleetId: FleetId, world: World, parts: WatcherParts) {
    this.#engine = engine;
    this.#fleetId = fleetId;
    this.#world = world;
    this.#parts = parts;
  }

  add(listener: Listener): () => void {
    // One function may be given twice, and then hears everything twice.
    const own: Listener = (event) => listener(event);
    this.#listeners.add(own);
    if (this.#subscription === null) this.#begin();
    return () => {
      if (this.#listeners.delete(own) && this.#listeners.size === 0) this.stop();
    };
  }

  stop(): void {
    this.#listeners.clear();
    this.#told.clear();
    this.#subscription?.abort(new Error("nobody listens any more"));
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
        // Whatever it was, whoever listens looks for himself, and we subscribe again.
      }
      if (signal.aborted) return;
      this.tell({ type: "resync" });
      await sleep(this.#world, waitMs, signal, { background: true }).catch(() => {});
      waitMs = Math.min(waitMs * 2, RETRY_MAX_MS);
      await this.#engine.identify().catch(() => {});
      // An engine that is there again may have lost what it knew: told once more when it can answer.
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

  /** Also for what was heard elsewhere. */
  tell(event: EngineEvent): void {
    for (const listener of [...this.#listeners]) listener(event);
  }
}
