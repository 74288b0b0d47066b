/**
 * Whether an object lives. Its init's process shows it, and its pulse, which the kernel keeps: every process of this
 * machine sees the same pulse, in any pid namespace. Anything else is `unknown`.
 */

import { type Layout, pulsePath } from "../../../host/layout.ts";
import { livenessOf } from "../../../host/process-table.ts";
import type { Liveness, World } from "../../../world/world.ts";
import { hasPulse } from "../engine/pulse.ts";
import type { ParsedRef } from "./engine-ref.ts";
import type { LocalObject } from "./object-store.ts";

export class ObjectLiveness {
  readonly #layout: Layout;
  readonly #world: World;
  readonly #machineId: string;

  constructor(layout: Layout, world: World, machineId: string) {
    this.#layout = layout;
    this.#world = world;
    this.#machineId = machineId;
  }

  of({ name, record, process, isRemains }: LocalObject): Liveness {
    if (isRemains) return "dead";
    if (record.maker.bootId !== this.#world.identity.bootId) return this.#afterReboot(record.machineId);
    if (process !== null && livenessOf(process.init) === "alive") return "alive";
    if (hasPulse(pulsePath(this.#layout, name))) return "alive";
    if (process !== null) return livenessOf(process.init);
    // Nothing was started yet. Its maker may be about to start it.
    return this.#world.processLiveness(record.maker) === "dead" ? "dead" : "unknown";
  }

  /** For an object without a record: only its reference is left. */
  ofReference({ bootId, process }: ParsedRef): Liveness {
    if (process === null) return "dead";
    return bootId === this.#world.identity.bootId ? livenessOf(process) : "dead";
  }

  /**
   * A process does not outlive its boot; but another boot id may also mean another machine that shares the directory.
   */
  #afterReboot(machineId: string): Liveness {
    return machineId !== "" && machineId === this.#machineId ? "dead" : "unknown";
  }
}
