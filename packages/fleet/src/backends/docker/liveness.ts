/**
 * The liveness of a container, from its engine. Without a response, or with one from another engine, it is `unknown`.
 */

import { type EngineRef, isSandlotError } from "@sandlot/contract";
import type { Liveness, World } from "../../world/world.ts";
import type { Engine } from "./engine/engine.ts";
import type { ContainerObject, ContainerObjects } from "./objects/container-objects.ts";
import { parseRef } from "./objects/labels.ts";

/** `created` is neither: its maker may be about to start it. */
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

  /** Nothing runs yet. Its maker may be about to start it, or is dead. */
  ofMaking({ record }: ContainerObject): Liveness {
    return this.#world.processLiveness(record.maker) === "dead" ? "dead" : "unknown";
  }

  /** Whether the responding engine is the one that has it. */
  isOurEngine(object: ContainerObject | null): boolean {
    return object?.container == null || object.container.engineId === this.#engine.facts.id;
  }
}
