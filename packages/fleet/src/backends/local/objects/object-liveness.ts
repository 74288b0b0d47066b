/**
 * Whether an object lives. Its init's process says so, and its pulse, which the kernel keeps: it is the same seen from
 * every process of this machine, in whatever pid namespace. What cannot be told from here is `unknown`.
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
    // Nothing was started yet. Whoever makes it may be about to.
    return this.#world.processLiveness(record.maker) === "dead" ? "dead" : "unknown";
  }

  /** Of what is written down nowhere: only its reference is left to ask. */
  ofReference({ bootId, process }: ParsedRef): Liveness {
    if (process === null) return "dead";
    return bootId === this.#world.identity.bootId ? livenessOf(process) : "dead";
  }

  /** A process does not outlive its boot; but another boot may also be another machine that shares the directory. */
  #afterReboot(machineId: string): Liveness {
    return machineId !== "" && machineId === this.#machineId ? "dead" : "unknown";
  }
}
