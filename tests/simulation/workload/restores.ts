/** Checkpoints and restores, in some of the runs. The other runs stay the same without them. */

import type { Random } from "../schedule/random.ts";
import type { Simulation } from "../simulation.ts";
import type { Callers } from "./callers.ts";
import { THREADS, type ThreadName } from "./threads.ts";

const RUNS = 0.4;
const SHARES = { take: 0.04, restore: 0.05 } as const;

export class Restores {
  readonly #simulation: Simulation;
  readonly #callers: Callers;
  readonly #random: Random;
  readonly #isOn: boolean;

  constructor(simulation: Simulation, callers: Callers, random: Random) {
    this.#simulation = simulation;
    this.#callers = callers;
    this.#random = random;
    this.#isOn = random.chance(RUNS);
  }

  /** Called with every event of the workload. */
  happen(): void {
    if (!this.#isOn) return;
    const open = this.#simulation.open();
    if (open.length === 0) return;
    if (this.#random.chance(SHARES.take)) this.#callers.checkpoint(this.#random.pick(open), this.#thread());
    if (this.#random.chance(SHARES.restore)) this.#restore();
  }

  /** Sometimes its instance dies in one of the next calls. */
  #restore(): void {
    const { truth, faults } = this.#simulation;
    const thread = this.#thread();
    const owner = `${thread.user}/${thread.thread}`;
    const instance = this.#random.pick(this.#simulation.open());
    const known = [...(truth.ledger.of(instance.engine).histories.get(owner)?.checkpoints.keys() ?? [])];
    if (known.length === 0) return;
    const force = this.#random.chance(0.6);
    faults.count(force ? "restore-forced" : "restore-plain");
    const { acquireTimeoutMs } = this.#simulation.settings;
    const timeoutMs = this.#random.pick([2_000, acquireTimeoutMs]);
    this.#callers.restore(instance, thread, { checkpoint: this.#random.pick(known), force, timeoutMs });
    if (!this.#random.chance(0.5)) return;
    const simulation = this.#simulation;
    simulation.scheduler.after(this.#random.between(0, 400), () => {
      if (!instance.process.alive || instance.closing || simulation.open().length < 2) return;
      faults.count("restore-actor-killed");
      simulation.kill(instance);
    });
  }

  #thread(): ThreadName {
    return this.#random.pick(THREADS);
  }
}
