/**
 * Plots: sequences of several steps that chance would hardly ever draw. Each is on in some of the runs only; the other
 * runs stay the same without it.
 */

import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import type { Instance } from "../process/instance.ts";
import type { Random } from "../schedule/random.ts";
import type { Simulation } from "../simulation.ts";
import type { Callers } from "./callers.ts";
import { THREADS } from "./threads.ts";

type Kind =
  | "rush"
  | "lateTake"
  | "busyOnceAsked"
  | "forgottenHold"
  | "deadBeforeLoss"
  | "purgeBeforeLoss"
  | "lookBeforeRecovery"
  | "unheardLoss";

/** The share of runs with a plot, and its chance at every event of such a run. */
const PLOTS: Readonly<Record<Kind, { readonly runs: number; readonly share: number }>> = {
  rush: { runs: 0.4, share: 0.04 },
  lateTake: { runs: 0.2, share: 0.02 },
  busyOnceAsked: { runs: 0.2, share: 0.05 },
  forgottenHold: { runs: 0.2, share: 0.015 },
  deadBeforeLoss: { runs: 0.15, share: 0.01 },
  purgeBeforeLoss: { runs: 0.15, share: 0.01 },
  lookBeforeRecovery: { runs: 0.15, share: 0.01 },
  unheardLoss: { runs: 0.15, share: 0.01 },
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

  /** A forced destroy ends a sandbox while the response to its taker is in transit; the sandbox lives on a while. */
  protected _lateTake(): void {
    const { scheduler, faults, truth } = this.#simulation;
    const [one, other] = this.#two();
    const parked = this.#ready().filter(({ holders, leases }) => isEmpty(holders) && isEmpty(leases));
    if (one === undefined || other === undefined || parked.length === 0) return;
    const record = this.#random.pick(parked);
    const object = truth.objectOf(record);
    const name = THREADS.find(({ user, thread }) => user === record.user && thread === record.thread);
    if (name === undefined || object === undefined) return;
    faults.count("taken-and-ended-before-the-answer");
    one.script.late.add("take");
    object.script.destroyHangs = true;
    this.#callers.acquire(one, { ...PATIENT, thread: name, user: name.user });
    const options = { force: true, purge: false, timeoutMs: 1_000 };
    scheduler.after(this.#random.between(20, 400), () => this.#callers.destroy(other, name, options));
  }

  /** Work begins inside a parked sandbox just after it reported that it is idle. */
  protected _busyOnceAsked(): void {
    const parked = this.#ready().filter(({ holders, leases }) => isEmpty(holders) && isEmpty(leases));
    const object = parked.length === 0 ? undefined : this.#simulation.truth.objectOf(this.#random.pick(parked));
    if (object?.alive === true && object.busySince === null) object.script.busyOnceAsked = true;
  }

  /** A peer ends the session of a paused instance, whose new session begins without its notice. */
  protected _forgottenHold(): void {
    const { truth, settings } = this.#simulation;
    const holders = [...truth.leases].filter((held) => truth.isUsable(held) && !held.instance.closing);
    if (holders.length === 0) return;
    const { instance } = this.#random.pick(holders);
    const { sessionLifetimeMs } = settings;
    instance.script.registerFails = "after-effect";
    this.#simulation.faults.count("registered-unheard");
    this.#simulation.pause(instance, sessionLifetimeMs + this.#random.between(500, 4 * sessionLifetimeMs));
  }

  /** A held sandbox dies silently, and then the store is lost. */
  protected _deadBeforeLoss(): void {
    const { truth, faults, trace, scheduler } = this.#simulation;
    const holders = [...truth.leases].filter((held) => truth.isUsable(held));
    if (holders.length === 0) return;
    const { sandboxId } = this.#random.pick(holders);
    for (const object of truth.objectsOf(sandboxId)) truth.ledger.crashQuietly(object);
    trace.add("engine", "quiet crash", () => sandboxId);
    faults.count("sandbox-crash");
    faults.count("dead-before-the-store");
    scheduler.after(this.#random.between(0, 200), () => this.#loseStore());
  }

  /** An instance, and a thread with a ready sandbox. */
  #instanceAndThread() {
    const [instance] = this.#two();
    const ready = this.#ready();
    if (instance === undefined || ready.length === 0) return null;
    const record = this.#random.pick(ready);
    const name = THREADS.find(({ user, thread }) => user === record.user && thread === record.thread);
    if (name === undefined) return null;
    return { instance, record, name };
  }

  /** A purge is recorded, and then the store is lost. The waiting destroy looks again when the store has recovered. */
  protected _purgeBeforeLoss(): void {
    const { truth, faults, scheduler } = this.#simulation;
    const found = this.#instanceAndThread();
    if (found === null) return;
    const { instance, record, name } = found;
    faults.count("purge-forced");
    faults.count("purged-before-the-loss");
    const timeoutMs = 6 * this.#simulation.settings.sessionLifetimeMs;
    this.#callers.destroy(instance, name, { force: true, purge: true, timeoutMs });
    const until = scheduler.now + 1_000;
    const look = () => {
      if (truth.tables.record(record.sandboxId)?.state === "stopping") {
        instance.script.late.add("find");
        scheduler.after(this.#random.between(0, 300), () => this.#loseStore());
      } else if (scheduler.now < until) scheduler.after(this.#random.between(1, 20), look);
    };
    look();
  }

  /** A destroy looks while a new store knows nothing yet, and gets that result when the store has recovered. */
  protected _lookBeforeRecovery(): void {
    const { faults, scheduler, settings } = this.#simulation;
    const found = this.#instanceAndThread();
    if (found === null) return;
    const { instance, name } = found;
    faults.count("looked-before-recovery");
    this.#loseStore();
    const options = { force: this.#random.chance(0.5), purge: false, timeoutMs: 6 * settings.sessionLifetimeMs };
    scheduler.after(this.#random.between(0, 50), () => {
      instance.script.late.add("find");
      this.#callers.destroy(instance, name, options);
    });
  }

  /** The store's clock is stepped, the store is lost, and the response to a registration with the next one is lost. */
  protected _unheardLoss(): void {
    const { faults, truth } = this.#simulation;
    faults.count("registered-unheard");
    this.#simulation.stepClock(truth.tables.host, this.#random.pick([-3_600_000, 3_600_000]));
    this.#loseStore();
    for (const { script } of this.#simulation.open())
      script.registerFails = this.#random.chance(0.5) ? "before-effect" : "after-effect";
  }

  // --- Steps

  #loseStore(): void {
    const { faults, trace, truth } = this.#simulation;
    if (faults.healed) return;
    faults.count("store-emptied");
    trace.add("store", "emptied");
    truth.tables.empty();
  }

  /** Ready sandboxes of threads. */
  #ready(): readonly SandboxRecord[] {
    return this.#simulation.truth.tables.records().filter(({ state, thread }) => state === "ready" && thread !== null);
  }

  /** Two instances that accept requests, if there are two. */
  #two(): readonly (Instance | undefined)[] {
    const open = this.#simulation.open();
    if (open.length === 0) return [];
    const first = this.#random.pick(open);
    return [first, open.find((other) => other !== first)];
  }
}

const PATIENT = { timeoutMs: 60_000, ttlMs: null, abortAfterMs: null };

function isEmpty(entries: object): boolean {
  return Object.keys(entries).length === 0;
}
