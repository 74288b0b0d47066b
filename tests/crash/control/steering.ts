/**
 * Catches a child in a requested state. Chance alone would nearly always find it with leases and hardly ever in the few
 * milliseconds of a bind.
 *
 *   creating, binding, stopping   the engine traps a call that only happens in that state, from any child
 *   leased, parked                the first child that reports it
 *   none                          one that was just started
 *
 * The state is checked against the store at the moment of the kill; this only makes it likely.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { Random } from "../../simulation/schedule/random.ts";
import type { EngineConnection } from "../backend-client/engine-connection.ts";
import type { Trap } from "../wire.ts";
import type { Child } from "./child-process.ts";
import type { Signal, Signals } from "./signals.ts";
import type { StateHit } from "./states.ts";
import type { Workers } from "./workers.ts";

export interface Caught {
  readonly child: Child;
  /** The call that waits in the engine, if the child was caught by one. */
  readonly held: number | null;
}

const TRAPS: Partial<Record<StateHit, Trap["methods"]>> = {
  creating: ["create"],
  binding: ["moveIn", "makeIn", "rebind"],
  stopping: ["destroy", "moveHome", "purge"],
};

/** After this long without a catch, children are nudged; after the second time any child is taken. */
const PATIENCE_MS = 80;
const AFTER_NUDGE_MS = 250;
/** A child that started this recently has hardly begun. */
const FRESH_MS = 250;

export class Steering {
  readonly #workers: Workers;
  readonly #engine: EngineConnection;
  readonly #signals: Signals;
  readonly #random: Random;

  constructor(parts: { workers: Workers; engine: EngineConnection; signals: Signals; random: Random }) {
    this.#workers = parts.workers;
    this.#engine = parts.engine;
    this.#signals = parts.signals;
    this.#random = parts.random;
  }

  async catch(state: StateHit | null, isEligible: (child: Child) => boolean): Promise<Caught | null> {
    const methods = state === null ? undefined : TRAPS[state];
    const caught =
      methods !== undefined
        ? await this.#trap(methods, isEligible)
        : state === "leased" || state === "parked"
          ? await this.#listen(state === "leased" ? "leased" : "released", isEligible)
          : state === "none"
            ? await this.#newest(isEligible)
            : null;
    return caught ?? this.#anybody(isEligible);
  }

  async #trap(methods: Trap["methods"], isEligible: (child: Child) => boolean): Promise<Caught | null> {
    const trap: Trap = { methods, when: this.#random.chance(0.5) ? "before" : "after" };
    const pick = (signal: Signal): Caught | null => {
      if (signal.what !== "held") return null;
      const child = this.#workers.active().find(({ name }) => name === signal.name);
      if (child !== undefined && isEligible(child)) return { child, held: signal.held };
      // Another child, or one that is gone: let it pass and wait for the next one.
      this.#engine.tell("decide", [signal.held, { kind: "go", afterMs: 0 }]);
      this.#engine.tell("trap", [trap]);
      return null;
    };
    const first = this.#signals.next(PATIENCE_MS, pick);
    await this.#engine.ask("trap", [trap]);
    let caught = await first;
    if (caught === null) {
      for (const child of this.#workers.active()) if (isEligible(child)) child.send({ command: "nudge" });
      caught = await this.#signals.next(AFTER_NUDGE_MS, pick);
    }
    if (caught !== null) return caught;
    // A call may be trapped until the engine knows that the wait is over.
    const late = this.#signals.next(20, pick);
    await this.#engine.ask("trap", [null]);
    return late;
  }

  #listen(what: "leased" | "released", isEligible: (child: Child) => boolean): Promise<Caught | null> {
    return this.#signals.next(PATIENCE_MS + AFTER_NUDGE_MS, (signal) =>
      signal.what === what && isEligible(signal.child) ? { child: signal.child, held: null } : null,
    );
  }

  /** At any moment of its start: while it opens the store, registers, or reads the state. */
  async #newest(isEligible: (child: Child) => boolean): Promise<Caught | null> {
    const now = performance.now();
    const fresh = this.#workers.active().filter((child) => isEligible(child) && now - (child.wentAt ?? 0) < FRESH_MS);
    const child = fresh[0];
    if (child === undefined) return null;
    await sleep(this.#random.between(0, 40));
    return { child, held: null };
  }

  async #anybody(isEligible: (child: Child) => boolean): Promise<Caught | null> {
    await sleep(this.#random.between(0, 60));
    const eligible = this.#workers.active().filter(isEligible);
    return eligible.length === 0 ? null : { child: this.#random.pick(eligible), held: null };
  }
}
