/**
 * Whether a container lives, as its engine says. Not being able to ask is `unknown`, and so is an answer of another engine.
 */

import { type EngineRef, isSandlotError } from "@sandlot/contract";
import type { Liveness, World } from "../../world/world.ts";
import type { Engine } from "./engine/engine.ts";
import type { ContainerObject, ContainerObjects } from "./objects/container-objects.ts";
import { parseRef } from "./objects/labels.ts";

/** `created` is neither: whoever makes it may be about to start it. */
const ALIVE: ReadonlySet<string> = new Set(["running", "paused", "restarting"]);

export class ContainerLiveness {
  readonly #engine: Engine;
  readonly #objects: ContainerObjects;
  readonly #world: World;

  constructor(engine: Engine, objects: ContainerObjects, world: World) {
    this.#engine = engine;
    this.#objects = objects;
    this.#world = world;
  }

  async probe(ref: EngineRef): Promise<Liveness> {
    const parsed = parseRef(ref);
    if (parsed === null) return "unknown";
    const object = await this.#objects.get(parsed.name);
    if (object?.isRemains === true) return "dead";
    const containerId = parsed.containerId ?? object?.container?.containerId;
    if (containerId === undefined) return object === null ? "dead" : this.ofMaking(object);
    try {
      if (!this.isOurEngine(object)) return "unknown";
      const found = await this.#engine.inspect(containerId);
      return found === null ? "dead" : this.of(found.State.Status, object);
    } catch (error) {
      if (isSandlotError(error, "engine_unavailable")) return "unknown";
      throw error;
    }
  }

  of(status: string, object: ContainerObject | null): Liveness {
    if (ALIVE.has(status)) return "alive";
    return status === "created" && object !== null ? this.ofMaking(object) : "dead";
  }

  /** Nothing runs yet. Whoever makes it may be about to, or is dead. */
  ofMaking({ record }: ContainerObject): Liveness {
    return this.#world.processLiveness(record.maker) === "dead" ? "dead" : "unknown";
  }

  /** Whether the engine that answers is the one that has it. */
  isOurEngine(object: ContainerObject | null): boolean {
    return object?.container == null || object.container.engineId === this.#engine.facts.id;
  }
}
