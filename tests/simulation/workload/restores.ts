/** Checkpoints and restores, in some of the runs. The other runs stay the same without them. */

import { isSandlotError } from "@sandlot/contract";
import type { Instance } from "../process/instance.ts";
import type { Random } from "../schedule/random.ts";
import type { Simulation } from "../simulation.ts";
import type { Callers } from "./callers.ts";
import { DESTROY_ERRORS, RESTORE_ERRORS } from "./named-errors.ts";
import { ownerName, THREADS, type ThreadName } from "./threads.ts";

const RUNS = 0.4;
const SHARES = { take: 0.04, restore: 0.05 } as const;
/** A restore takes so many calls, from the store's note of it to the end of its record. */
const CALLS = 24;
/** The store is lost while a workspace is half restored: no record says so any more. */
const LOST = 0.05;

export class Restores {
  readonly #simulation: Simulation;
  readonly #callers: Callers;
  readonly #random: Random;
  /** Of the deaths in single calls. */
  readonly #deaths: Random;
  readonly #isOn: boolean;

  constructor(simulation: Simulation, callers: Callers, random: Random, deaths: Random) {
    this.#simulation = simulation;
    this.#callers = callers;
    this.#random = random;
    this.#deaths = deaths;
    this.#isOn = random.chance(RUNS);
  }

  /** Called with every event of the workload. */
  happen(): void {
    if (!this.#isOn) return;
    const open = this.#simulation.open();
    if (open.length === 0) return;
    if (this.#random.chance(SHARES.take)) this.#take(this.#random.pick(open), this.#thread());
    if (this.#random.chance(SHARES.restore)) this.#restore();
    this.#loseStore();
  }

  #loseStore(): void {
    const { faults, trace, truth } = this.#simulation;
    const isHalf = truth.ledger.all.some(({ histories }) =>
      [...histories.values()].some(({ unfinished }) => unfinished !== null),
    );
    if (!isHalf || faults.healed || !this.#deaths.chance(LOST)) return;
    faults.count("store-emptied");
    trace.add("store", "emptied in a restore");
    truth.tables.empty();
  }

  /** Sometimes its instance dies in one of the next calls. */
  #restore(): void {
    const { truth, faults } = this.#simulation;
    const thread = this.#thread();
    const owner = ownerName(thread);
    const instance = this.#random.pick(this.#simulation.open());
    const known = [...(truth.ledger.of(instance.engine).histories.get(owner)?.checkpoints.keys() ?? [])];
    if (known.length === 0) return;
    const force = this.#random.chance(0.6);
    faults.count(force ? "restore-forced" : "restore-plain");
    const { acquireTimeoutMs } = this.#simulation.settings;
    const timeoutMs = this.#random.pick([2_000, acquireTimeoutMs]);
    this.#ask(instance, thread, { checkpoint: this.#random.pick(known), force, timeoutMs });
    if (this.#random.chance(0.5)) this.#killSoon(instance);
    else this.#ambush(instance);
  }

  #killSoon(instance: Instance): void {
    const simulation = this.#simulation;
    simulation.scheduler.after(this.#random.between(0, 400), () => {
      if (!instance.process.alive || instance.closing || simulation.open().length < 2) return;
      simulation.faults.count("restore-actor-killed");
      simulation.kill(instance);
    });
  }

  /** Dies before, in or after one of its next calls. */
  #ambush({ process }: Instance): void {
    if (!this.#deaths.chance(0.7) || process.ambush !== null || this.#simulation.open().length < 2) return;
    this.#simulation.faults.count("restore-actor-killed");
    const act = this.#deaths.pick(["kill-before-effect", "kill-after-effect", "kill-in-flight"] as const);
    process.ambush = { calls: this.#deaths.between(1, CALLS), act };
  }

  #take(instance: Instance, name: ThreadName): void {
    this.#simulation.trace.add(instance.name, "checkpoint", () => ownerName(name));
    instance.process.deliver(() => {
      instance.fleet?.checkpoints.take(name).then(
        () => undefined,
        (error: unknown) => this.#checkError("checkpoint", instance, error),
      );
    });
  }

  #ask(
    instance: Instance,
    name: ThreadName,
    { checkpoint, ...options }: { checkpoint: string; force: boolean; timeoutMs: number },
  ): void {
    const { trace, truth, reachChecks } = this.#simulation;
    const owner = ownerName(name);
    trace.add(instance.name, "restore", () => `${owner} to ${checkpoint} ${JSON.stringify(options)}`);
    instance.process.deliver(() => {
      if (instance.fleet === null) return;
      const thread = truth.thread(owner);
      thread.destroyAsked = true;
      if (options.force) thread.forcedBy.add(instance.name);
      const asked = this.#callers.ask(instance, owner, options.timeoutMs);
      instance.fleet.checkpoints.restore(name, checkpoint, options).then(
        () => this.#callers.answered(asked),
        (error: unknown) => {
          this.#callers.answered(asked);
          reachChecks.refused(error, asked);
          trace.add(instance.name, "restore refused", () => String(error));
          this.#checkError("restore", instance, error);
        },
      );
    });
  }

  #checkError(what: string, instance: Instance, error: unknown): void {
    const named = isSandlotError(error) && (DESTROY_ERRORS.has(error.code) || RESTORE_ERRORS.has(error.code));
    this.#simulation.findings.check("errors-are-named", named, () => `${what} at ${instance.name}: ${String(error)}`);
  }

  #thread(): ThreadName {
    return this.#random.pick(THREADS);
  }
}
