/**
 * The events of a run: a few hundred, each drawn from the seed with weights that differ from run to run, at moments
 * that come in bursts and lulls. Ordinary use and faults are drawn together, so that they meet.
 */

import type { HeldLease } from "../checks/truth.ts";
import type { Instance } from "../process/instance.ts";
import { Random } from "../schedule/random.ts";
import type { Simulation } from "../simulation.ts";
import { Callers } from "./callers.ts";
import { Cuts } from "./cuts.ts";
import { BLUEPRINT_NAMES } from "./draw-settings.ts";
import { EventWeights } from "./event-weights.ts";
import { Plots } from "./plots.ts";
import { Restores } from "./restores.ts";
import { THREADS, type ThreadName } from "./threads.ts";

const INSTANCES_MIN = 3;

export class Workload {
  readonly callers: Callers;
  readonly threads = THREADS;
  readonly #simulation: Simulation;
  readonly #random: Random;
  /** For later additions, so that the rest of a run stays the same. */
  readonly #more: Random;
  readonly #beside: readonly { happen(): void }[];
  readonly #weights: EventWeights;
  readonly #events: number;
  readonly #instancesMax: number;
  readonly #gapMs: number;
  #ended = false;

  constructor(simulation: Simulation, seed: number) {
    this.#simulation = simulation;
    this.#random = new Random(seed, 4);
    this.#more = new Random(seed, 6);
    this.callers = new Callers(simulation);
    const plots = new Plots(simulation, this.callers, new Random(seed, 7));
    const restores = new Restores(simulation, this.callers, new Random(seed, 12), new Random(seed, 15));
    this.#beside = [plots, new Cuts(simulation, new Random(seed, 11)), restores];
    this.#events = this.#random.between(200, 260);
    const least = simulation.engines.isShared ? INSTANCES_MIN + 1 : INSTANCES_MIN;
    this.#instancesMax = this.#random.between(least, least + 1);
    this.#gapMs = this.#random.pick([250, 500, 900]);
    this.#weights = new EventWeights(this.#random);
  }

  /** Starts the instances, and draws events until there were enough. */
  async run(): Promise<void> {
    const { scheduler } = this.#simulation;
    for (let count = 0; count < this.#instancesMax; count += 1) this.#start();
    let left = this.#events;
    const next = () => {
      this.#happen();
      left -= 1;
      if (left > 0) scheduler.after(this.#gap(), next);
    };
    scheduler.after(3_000, next);
    await scheduler.run(Number.POSITIVE_INFINITY, () => left === 0);
    this.#ended = true;
  }

  /** Bursts within a few milliseconds, and lulls in which timeouts run out. */
  #gap(): number {
    const lull = this.#random.unit();
    if (lull < 0.4) return this.#random.between(0, 12);
    return lull < 0.97 ? this.#random.exponential(this.#gapMs) : 12_000;
  }

  /** As many instances run as at the beginning, and every engine is reached. */
  replenish(): void {
    while (this.#living().length < this.#instancesMax) this.#start();
    for (const host of this.#simulation.hosts)
      if (!this.#living().some(({ engine }) => engine === this.#simulation.engineOf(host)))
        this.#simulation.start(host);
  }

  #happen(): void {
    const kind = this.#weights.draw();
    const living = this.#living().length;
    if (living === 0 || (living < INSTANCES_MIN && this.#random.chance(0.5))) this.#start();
    this[`_${kind}`]();
    for (const other of this.#beside) other.happen();
    if (this.#random.chance(0.2)) for (const held of this.#leases()) this.#simulation.leaseChecks.checkOneSandbox(held);
  }

  // --- Ordinary use

  protected _acquire(): void {
    const instance = this.#someone();
    const thread = instance === null || this.#random.chance(0.1) ? null : this.#thread();
    if (instance !== null) this.#acquire(this.#following(instance, thread), thread);
  }

  protected _acquireEverywhere(): void {
    const thread = this.#thread();
    const open = this.#simulation.open();
    if (open.length > 1) this.#simulation.faults.count("acquire-everywhere");
    for (const instance of open) this.#acquire(instance, thread);
  }

  /** Different threads at once, so that they compete for the same blank, or for the same last room. */
  protected _acquireTogether(): void {
    const open = this.#simulation.open();
    const blanks = this.#simulation.truth.tables
      .records()
      .filter((record) => record.state === "ready" && record.thread === null);
    if (blanks.length > 0 && open.length > 1) this.#simulation.faults.count("blanks-from-two-sides");
    for (const instance of open) this.#acquire(instance, this.#thread());
  }

  protected _warm(): void {
    const instance = this.#someone();
    if (instance !== null) this.callers.warm(instance, this.#thread());
  }

  protected _write(): void {
    const held = this.#someLease();
    if (held !== null) this.callers.write(held);
  }

  protected _writeStale(): void {
    const all = [...this.#simulation.truth.leases].filter(
      ({ instance }) => instance.process.alive && instance.fleet !== null,
    );
    if (all.length > 0) this.callers.write(this.#random.pick(all), true);
  }

  protected _read(): void {
    const held = this.#someLease();
    if (held !== null) this.callers.read(held);
  }

  protected _release(): void {
    const held = this.#someLease();
    if (held !== null) this.callers.release(held);
  }

  protected _releaseTwice(): void {
    const held = this.#someLease();
    if (held === null) return;
    this.#simulation.faults.count("released-twice");
    this.callers.release(held, 2);
    this.#simulation.scheduler.after(this.#random.between(0, 3_000), () => this.callers.release(held));
  }

  protected _look(): void {
    const instance = this.#someone();
    if (instance !== null) this.callers.look(instance);
  }

  protected _destroyPlain(): void {
    this.#destroy(false, false);
  }

  protected _destroyForced(): void {
    this.#destroy(true, false);
  }

  protected _purgePlain(): void {
    this.#destroy(false, true);
  }

  protected _purgeForced(): void {
    this.#destroy(true, true);
  }

  protected _destroyWhileAcquiring(): void {
    const thread = this.#thread();
    const [one, other] = [this.#someone(), this.#someone()];
    if (one === null || other === null) return;
    this.#simulation.faults.count("destroy-while-acquiring");
    this.#acquire(one, thread);
    const options = { force: this.#random.chance(0.5), purge: this.#random.chance(0.5), timeoutMs: null };
    this.#simulation.scheduler.after(this.#random.between(0, 30), () => this.callers.destroy(other, thread, options));
  }

  protected _remoteRenew(): void {
    const [held, instance] = [this.#someRemote(), this.#someone()];
    if (held === null || instance === null) return;
    if (instance !== held.instance) this.#simulation.faults.count("remote-renewed-elsewhere");
    this.callers.remote.renew(instance, held);
  }

  protected _remoteRelease(): void {
    const [held, instance] = [this.#someRemote(), this.#someone()];
    if (held === null || instance === null) return;
    if (instance !== held.instance) this.#simulation.faults.count("remote-released-elsewhere");
    this.callers.remote.releaseRemote(instance, held);
  }

  protected _remoteGuess(): void {
    const instance = this.#someone();
    if (instance !== null) this.callers.remote.releaseGuessed(instance, this.#random.between(1, 12));
  }

  // --- Faults

  protected _crash(): void {
    const living = this.#ours();
    if (living.length === 0) return;
    const object = this.#random.pick(living);
    this.#simulation.faults.count("sandbox-crash");
    this.#simulation.trace.add("engine", "crash", () => object.ref);
    this.#simulation.truth.ledger.crash(object);
  }

  protected _busy(): void {
    const living = this.#ours().filter((object) => object.busySince === null);
    if (living.length === 0) return;
    this.#simulation.faults.count("sandbox-busy");
    this.#random.pick(living).busySince = this.#simulation.scheduler.now;
  }

  protected _idle(): void {
    const busy = this.#ours().filter((object) => object.busySince !== null);
    if (busy.length === 0) return;
    const object = this.#random.pick(busy);
    object.busySince = null;
    object.idleSince = this.#simulation.scheduler.now;
  }

  protected _kill(): void {
    const instance = this.#random.pick(this.#living());
    const act = this.#random.pick(["kill-before-effect", "kill-after-effect", "kill-in-flight"] as const);
    instance.process.ambush = { calls: this.#random.between(1, 30), act };
  }

  protected _pauseLong(): void {
    const { sessionLifetimeMs } = this.#simulation.settings;
    this.#pause("pause-long", sessionLifetimeMs + this.#random.between(0, 2 * sessionLifetimeMs));
  }

  protected _pauseShort(): void {
    const { sessionLifetimeMs } = this.#simulation.settings;
    this.#pause("pause-short", this.#random.between(100, sessionLifetimeMs));
  }

  protected _close(): void {
    this.#close(false);
  }

  protected _closeDestroy(): void {
    this.#close(true);
  }

  protected _clockStep(): void {
    const byMs = this.#random.pick([-3_600_000, -60_000, -2_000, 2_000, 60_000, 3_600_000]);
    this.#simulation.faults.count(byMs > 0 ? "clock-forward" : "clock-back");
    this.#simulation.stepClock(this.#random.pick(this.#simulation.hosts), byMs);
  }

  protected _sleep(): void {
    const { hosts, faults, settings } = this.#simulation;
    const host = this.#random.pick(hosts);
    if (hosts.some(({ isAsleep }) => isAsleep)) return;
    faults.count("host-asleep");
    this.#simulation.sleep([host], this.#random.between(100, 4 * settings.sessionLifetimeMs), false);
  }

  /** All of them: a machine frozen alone cannot know that its peers went on. */
  protected _freeze(): void {
    const { hosts, faults, settings } = this.#simulation;
    if (hosts.some(({ isAsleep }) => isAsleep)) return;
    faults.count("host-frozen");
    this.#simulation.sleep(hosts, this.#random.between(100, 4 * settings.sessionLifetimeMs), true);
  }

  protected _outage(): void {
    const { outage, scheduler, faults, trace } = this.#simulation;
    if (scheduler.now < outage.until) return;
    faults.count("store-outage");
    const names = this.#living().map(({ name }) => name);
    outage.of = this.#random.chance(0.5) ? null : new Set([this.#random.pick(names)]);
    outage.until = scheduler.now + this.#random.pick([500, 3_000, 9_000, 22_000]);
    trace.add("store", "out", () => `until ${outage.until} for ${outage.of === null ? "all" : [...outage.of].join()}`);
  }

  protected _empty(): void {
    this.#simulation.faults.count("store-emptied");
    this.#simulation.trace.add("store", "emptied");
    this.#simulation.truth.tables.empty();
  }

  // --- Steps

  #start(): void {
    if (this.#simulation.instances.length >= this.#instancesMax) this.#simulation.faults.count("instance-restarted");
    this.#simulation.start(this.#random.pick(this.#simulation.hosts));
  }

  #acquire(instance: Instance, thread: ThreadName | null): void {
    const remote = this.#random.chance(0.15);
    if (remote) this.#simulation.faults.count("remote-granted");
    const ttlMs = remote ? this.#random.between(2_000, 20_000) : null;
    const wish = {
      thread,
      user: this.#thread().user,
      timeoutMs: this.#random.chance(0.2) ? this.#random.pick([50, 800, 3_000]) : null,
      ttlMs,
      abortAfterMs: this.#random.chance(0.12) ? this.#random.between(0, 300) : null,
      blueprint: this.#more.chance(0.2) ? this.#more.pick(BLUEPRINT_NAMES) : null,
    };
    const stays = this.#random.chance(0.3);
    this.callers.acquire(instance, wish, (held) => {
      if (this.#random.chance(0.5)) this.callers.read(held);
      if (this.#random.chance(0.6)) this.callers.write(held);
      if (remote && this.#random.chance(0.6)) this.#keepRenewing(held, ttlMs ?? 0, this.#random.between(0, 4));
      else if (!stays || this.#ended) {
        this.#simulation.scheduler.after(this.#random.exponential(2_500), () => this.callers.release(held));
      }
    });
  }

  /** A remote caller renews in time or a little late, at any instance, and after a while stops coming. */
  #keepRenewing(held: HeldLease, ttlMs: number, times: number): void {
    if (times === 0 || this.#ended) {
      this.#simulation.faults.count("remote-left-to-expire");
      return;
    }
    this.#simulation.scheduler.after(ttlMs * (0.4 + this.#random.unit() * 0.8), () => {
      const instance = this.#someone();
      if (instance !== null && instance !== held.instance) this.#simulation.faults.count("remote-renewed-elsewhere");
      if (instance !== null) this.callers.remote.renew(instance, held);
      this.#keepRenewing(held, ttlMs, times - 1);
    });
  }

  #destroy(force: boolean, purge: boolean): void {
    const instance = this.#someone();
    if (instance === null) return;
    const thread = this.#thread();
    const kind = purge ? (force ? "purge-forced" : "purge-plain") : force ? "destroy-forced" : "destroy-plain";
    this.#simulation.faults.count(kind);
    const timeoutMs = this.#random.chance(0.5) ? null : this.#random.between(100, 5_000);
    this.callers.destroy(instance, thread, { force, purge, timeoutMs });
  }

  #pause(kind: "pause-long" | "pause-short", forMs: number): void {
    const instance = this.#random.pick(this.#living());
    if (!instance.process.running) return;
    this.#simulation.faults.count(kind);
    if (this.#random.chance(0.5)) {
      this.#simulation.faults.count("pause-at-io");
      instance.process.ambush = { calls: this.#random.between(1, 20), act: { pauseMs: forMs } };
    } else this.#simulation.pause(instance, forMs);
  }

  #close(destroy: boolean): void {
    const instance = this.#someone();
    if (instance === null || this.#living().length < 2) return;
    this.#simulation.faults.count(destroy ? "close-destroy" : "close");
    const drainMs = this.#random.pick([0, 500, 5_000]);
    this.callers.close(instance, { destroy, drainMs }, () => this.#simulation.kill(instance));
  }

  #thread(): ThreadName {
    return this.#random.pick(THREADS);
  }

  #someone(): Instance | null {
    const open = this.#simulation.open();
    return open.length === 0 ? null : this.#random.pick(open);
  }

  /** With several engines most callers follow the thread to its engine. The others are told where it is. */
  #following(instance: Instance, thread: ThreadName | null): Instance {
    const { truth, engines } = this.#simulation;
    if (!engines.isShared || thread === null || this.#more.chance(0.3)) return instance;
    const home = truth.homes.get(`${thread.user}/${thread.thread}`)?.engine ?? instance.engine;
    const there = this.#simulation.open().filter(({ engine }) => engine === home);
    return instance.engine === home || there.length === 0 ? instance : this.#more.pick(there);
  }

  #living(): Instance[] {
    return this.#simulation.instances.filter(({ process }) => process.alive);
  }

  #leases(): HeldLease[] {
    return [...this.#simulation.truth.leases].filter(
      ({ releasedAt, instance }) => releasedAt === null && instance.process.alive,
    );
  }

  #someLease(): HeldLease | null {
    const leases = this.#leases();
    return leases.length === 0 ? null : this.#random.pick(leases);
  }

  #someRemote(): HeldLease | null {
    const remotes = [...this.#simulation.truth.leases].filter(({ remote }) => remote);
    return remotes.length === 0 ? null : this.#random.pick(remotes);
  }

  #ours() {
    const { ledger, settings } = this.#simulation.truth;
    return [...ledger.objects.values()].filter(({ labels, alive }) => alive && labels.fleet === settings.fleetId);
  }
}
