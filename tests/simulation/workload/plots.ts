/**
 * Plots: what takes several steps to come about, and would hardly ever be drawn. Each is on in some of the runs only; the
 * others stay what they were without it.
 */

import type { Random } from "../schedule/random.ts";
import type { Simulation } from "../simulation.ts";
import type { Callers } from "./callers.ts";
import { THREADS } from "./threads.ts";

type Kind = "rush";

/** In which share of the runs a plot is on, and how likely it then is with every event. */
const PLOTS: Readonly<Record<Kind, { readonly runs: number; readonly share: number }>> = {
  rush: { runs: 0.4, share: 0.04 },
};
const RUSH_CALLERS = 8;

export class Plots {
  readonly #simulation: Simulation;
  readonly #callers: Callers;
  readonly #random: Random;
  readonly #shares: ReadonlyMap<Kind, number>;

  constructor(simulation: Simulation, callers: Callers, random: Random) {
    this.#simulation = simulation;
    this.#callers = callers;
    this.#random = random;
    const plots = Object.entries(PLOTS) as [Kind, (typeof PLOTS)[Kind]][];
    this.#shares = new Map(plots.map(([kind, { runs, share }]) => [kind, random.chance(runs) ? share : 0]));
  }

  /** Called with every event of the workload. */
  happen(): void {
    for (const [kind, share] of this.#shares) if (this.#random.chance(share)) this[`_${kind}`]();
  }

  /** Many callers at one instance, of several users and threads, so that some have to wait for room in turn. */
  protected _rush(): void {
    const { scheduler, faults } = this.#simulation;
    const open = this.#simulation.open();
    if (open.length === 0) return;
    const instance = this.#random.pick(open);
    faults.count("rush-for-room");
    for (let count = 0; count < RUSH_CALLERS; count += 1) {
      const name = this.#random.pick(THREADS);
      const thread = this.#random.chance(0.5) ? name : null;
      const wish = { thread, user: name.user, timeoutMs: null, ttlMs: null, abortAfterMs: null };
      const heldMs = this.#random.between(50, 1_500);
      scheduler.after(this.#random.between(0, 40), () =>
        this.#callers.acquire(instance, wish, (held) => scheduler.after(heldMs, () => this.#callers.release(held))),
      );
    }
  }
}
