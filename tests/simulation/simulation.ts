/** One run: a store, one or more engines, several instances and every event that hits them, all from one seed. */

import { type FleetId, type InstanceId, isSandlotError, type SandboxId } from "@sandlot/contract";
import type { Settings } from "../../packages/fleet/src/config/settings.ts";
import type { Fleet } from "../../packages/fleet/src/fleet.ts";
import { assembleFleet } from "../../packages/fleet/src/open-fleet.ts";
import { epochAfter } from "../../packages/fleet/src/store/rows/epoch-order.ts";
import type { Liveness, ProcessIdentity } from "../../packages/fleet/src/world/world.ts";
import type { AdmissionChecks } from "./checks/admission-checks.ts";
import { EngineChecks } from "./checks/engine-checks.ts";
import { FactChecks } from "./checks/fact-checks.ts";
import { Findings } from "./checks/findings.ts";
import { LeaseChecks } from "./checks/lease-checks.ts";
import { PromiseChecks } from "./checks/promise-checks.ts";
import { addressOf, ReachChecks } from "./checks/reach-checks.ts";
import { StoreChecks } from "./checks/store-checks.ts";
import { Truth } from "./checks/truth.ts";
import { Engines } from "./engine/engines.ts";
import { EngineLedger } from "./engine/ledger.ts";
import { type EngineParts, SimBackend } from "./engine/sim-backend.ts";
import { Faults } from "./faults.ts";
import { Calls } from "./process/calls.ts";
import { Host } from "./process/host.ts";
import { Instance } from "./process/instance.ts";
import { Partitions } from "./process/partitions.ts";
import { Process } from "./process/process.ts";
import { SimWorld } from "./process/sim-world.ts";
import { Random } from "./schedule/random.ts";
import { Scheduler } from "./schedule/scheduler.ts";
import { Trace } from "./schedule/trace.ts";
import { SimRowStore } from "./store/sim-row-store.ts";
import { SimRows } from "./store/sim-rows.ts";
import { type Outage, SimStore, type StoreParts } from "./store/sim-store.ts";
import { WatchedTables } from "./store/watched-tables.ts";
import { type DrawnEngines, drawEngines } from "./workload/draw-engines.ts";
import { drawRows } from "./workload/draw-rows.ts";
import { drawSettings, forEngines } from "./workload/draw-settings.ts";

/** One in so many seeds runs on SQLite's rows, in memory. */
const SQLITE_EVERY = 20;
const HOSTS = ["north", "south", "east"] as const;
/** Hosts of a run with one engine. */
const HOSTS_OF_ONE = 2;

/** The last writes that a failover may lose. */
const REWIND_MAX_MS = 2_000;
/** How far the clock of a store's server is set. */
const CLOCK_STEPS_MS = [-60_000, -2_500, 2_500, 60_000];
/** Only without failovers: a server remembers commits for minutes, and tells a loss by them. */
const HOURS_MS = [-3_600_000, 3_600_000];
/** Allowed errors of opening a fleet. */
const OPENING_ERRORS: ReadonlySet<string> = new Set(["store_unavailable", "create_failed", "engine_unavailable"]);

/** Thrown by a listener on purpose. */
class PlantedError extends Error {}

export class Simulation {
  readonly scheduler: Scheduler;
  readonly trace: Trace;
  readonly findings: Findings;
  readonly faults: Faults;
  readonly truth: Truth;
  readonly leaseChecks: LeaseChecks;
  readonly engineChecks: EngineChecks;
  readonly reachChecks: ReachChecks;
  readonly promiseChecks: PromiseChecks;
  readonly factChecks: FactChecks;
  readonly admissionChecks: AdmissionChecks;
  readonly settings: Settings;
  readonly engines: DrawnEngines;
  readonly partitions: Partitions;
  readonly hosts: readonly Host[];
  readonly outage: Outage = { of: null, until: 0 };
  /** All instances, running or ended. */
  readonly instances: Instance[] = [];
  readonly #seed: number;
  readonly #engineParts = new Map<string, EngineParts>();
  readonly #engineOf = new Map<Host, string>();
  readonly #store: StoreParts;
  /** Listeners to events throw. */
  readonly #throwing: boolean;
  readonly #connections = new Map<Instance, SimStore | SimRowStore>();
  /** `null`: the instances share the tables themselves. */
  readonly #rows: SimRows | null;

  constructor(seed: number, options: { readonly keepTrace: boolean; readonly onTurn?: () => void }) {
    this.#seed = seed;
    this.scheduler = new Scheduler((error) => this.threw(error), options.onTurn);
    const now = () => this.scheduler.now;
    this.trace = new Trace(now, options.keepTrace);
    this.findings = new Findings(now, this.trace);
    const random = new Random(seed, 1);
    this.engines = drawEngines(seed);
    const { isShared, ofHosts, random: engineRandom } = this.engines;
    const drawn = drawSettings(random, new Random(seed, 5));
    this.settings = isShared ? forEngines(drawn, engineRandom) : drawn;
    this.faults = new Faults(random, new Random(seed, 8), new Random(seed, 10));
    this.partitions = new Partitions(this.scheduler);
    const isAlone = random.chance(0.2);
    const names = isShared ? HOSTS : HOSTS.slice(0, isAlone ? 1 : HOSTS_OF_ONE);
    this.hosts = names.map((name) => {
      const clocks = { clockErrorMs: random.between(-500, 500), drift: random.between(-1_000, 1_000) / 1_000 };
      return new Host({ name, scheduler: this.scheduler, ...clocks, bootedMs: random.between(0, 1_000_000_000) });
    });
    const tableRandom = new Random(seed, 2);
    // The store is on the first host.
    const tables = new WatchedTables(
      this.hosts[0] as Host,
      () => tableRandom.hex(16),
      isShared ? "shared" : seed % SQLITE_EVERY === 0 ? "sqlite" : "memory",
    );
    const [first, ...others] = this.engines.names;
    const [firstLedger, ...otherLedgers] = [
      new EngineLedger(now, first),
      ...others.map((name) => new EngineLedger(now, name)),
    ] as const;
    const ledger = new Engines([firstLedger, ...otherLedgers]);
    this.truth = new Truth({ scheduler: this.scheduler, tables, ledger, settings: this.settings, faults: this.faults });
    const { findings, faults, scheduler, trace, truth, settings } = this;
    const checks = new StoreChecks(truth, findings);
    tables.watchedBy(checks);
    this.leaseChecks = new LeaseChecks(truth, findings);
    this.admissionChecks = checks.admission;
    this.factChecks = new FactChecks(truth, findings);
    this.promiseChecks = new PromiseChecks(truth, findings);
    this.engineChecks = new EngineChecks(truth, findings);
    this.reachChecks = new ReachChecks(truth, findings);
    const { sessionLifetimeMs, fleetId } = settings;
    const shared = { faults, random: new Random(seed, 3), scheduler, trace, sessionLifetimeMs };
    const lateBinding = Object.keys(settings.pool).length > 0 || random.chance(0.3);
    const connectionsNoticeDeath = random.chance(0.5);
    this.#throwing = random.chance(0.1);
    const { partitions } = this;
    for (const one of ledger.all) {
      this.#engineParts.set(one.name, {
        ...{ ...shared, ledger: one, fleetId, lateBinding, connectionsNoticeDeath, partitions },
        audit: this.engineChecks,
        snapshots: [],
      });
      for (let index = 1; index <= 2; index += 1)
        one.plant("fleet-next-door" as FleetId, `foreign-${index}${one === firstLedger ? "" : one.name}` as SandboxId);
    }
    for (const [index, host] of this.hosts.entries()) this.#engineOf.set(host, ofHosts?.[index] ?? first);
    this.#store = { ...shared, tables, audit: checks, outage: this.outage, partitions };
    const { isRows, mayRewind, isClockSet, random: rowRandom } = drawRows(seed, isShared);
    const newEpoch = () => epochAfter(null, tables.now(), rowRandom.hex(16));
    this.#rows = isRows ? new SimRows({ tables, audit: checks, findings, truth, trace, newEpoch, mayRewind }) : null;
    if (isRows) truth.clockLagMs = 0.6 * sessionLifetimeMs;
    if (mayRewind) this.#rewindLater(rowRandom);
    if (isClockSet)
      this.#setClockLater(new Random(seed, 14), mayRewind ? CLOCK_STEPS_MS : [...CLOCK_STEPS_MS, ...HOURS_MS]);
  }

  /** Now and then the clock of the store's server is set, by seconds or by an hour. */
  #setClockLater(random: Random, stepsMs: readonly number[]): void {
    this.scheduler.after(random.between(5_000, 60_000), () => {
      if (this.faults.healed) return;
      const byMs = random.pick(stepsMs);
      this.trace.add("store", "clock set", () => `by ${byMs} ms`);
      this.faults.count("store-clock-stepped");
      this.truth.tables.stepClock(byMs);
      this.truth.storeClockSetAt = this.scheduler.now;
      this.truth.storeClockSteps.push(this.scheduler.now);
      this.#setClockLater(random, stepsMs);
    });
  }

  /** Now and then the database fails over to a replica that lacks the last writes. */
  #rewindLater(random: Random): void {
    this.scheduler.after(random.between(2_000, 30_000), () => {
      if (this.faults.healed) return;
      if (this.#rows?.rewind(random.between(1, REWIND_MAX_MS)) === true) this.faults.count("store-rewound");
      this.#rewindLater(random);
    });
  }

  /** A new process on a host, that opens a fleet. The process exists at once; its fleet once it is open. */
  start(host: Host): Instance {
    const number = this.instances.length + 1;
    const name = `i${number}`;
    const { scheduler, faults } = this;
    const identity: ProcessIdentity = {
      bootId: host.identity.bootId,
      pidNamespace: host.name,
      pid: 1_000 + number,
      startTime: String(scheduler.now),
    };
    const process = new Process(name, identity, scheduler);
    const random = new Random(this.#seed, 100 + number);
    const lookUp = (other: ProcessIdentity) => this.#liveness(instance, other);
    const world = new SimWorld({ process, host, scheduler, random, lookUp });
    const calls: Calls = new Calls({
      ...{ scheduler, random, process },
      count: (kind) => faults.count(kind),
      onKilled: () => this.killed(instance),
      onPaused: (forMs) => this.pause(instance, forMs),
    });
    const engine = this.engineOf(host);
    const instance: Instance = new Instance({ id: name as InstanceId, process, host, engine, world, calls });
    this.instances.push(instance);
    this.truth.instances.set(instance.id, instance);
    const store =
      this.#rows === null ? new SimStore(instance, this.#store) : new SimRowStore(instance, this.#store, this.#rows);
    this.#connections.set(instance, store);
    const backend = new SimBackend(instance, this.#engineParts.get(engine) as EngineParts);
    this.trace.add(name, "start", () => `on ${host.name}`);
    if (host.isAsleep) process.pause();
    const address = addressOf(instance);
    void assembleFleet({ settings: this.settings, world, store, backend, instanceId: instance.id, address }).then(
      (fleet) => {
        instance.fleet = fleet;
        this.#listen(instance, fleet);
        this.trace.add(name, "opened");
      },
      (error: unknown) => {
        this.trace.add(name, "could not open", () => String(error));
        const named = isSandlotError(error) && OPENING_ERRORS.has(error.code);
        this.findings.check("errors-are-named", named, () => `opening ${name}: ${String(error)}`);
        this.kill(instance);
      },
    );
    return instance;
  }

  /** The engine that a host reaches. */
  engineOf(host: Host): string {
    return this.#engineOf.get(host) ?? this.engines.names[0];
  }

  /** An event listener, and in some runs a second one that throws. */
  #listen(instance: Instance, fleet: Fleet): void {
    fleet.events.on((event) => {
      if (!instance.process.alive) return;
      this.factChecks.told(instance, event);
      this.admissionChecks.told(instance, event);
    });
    if (this.#throwing)
      fleet.events.on(() => {
        throw new PlantedError();
      });
  }

  watchesOf(instance: Instance): number {
    return this.#connections.get(instance)?.watches ?? 0;
  }

  kill(instance: Instance): void {
    if (!instance.process.alive) return;
    instance.process.kill();
    this.killed(instance);
  }

  /** The consequences of a process's death for the others. */
  killed(instance: Instance): void {
    this.trace.add(instance.name, "killed");
    instance.fleet = null;
    this.#connections.get(instance)?.disconnect();
  }

  pause(instance: Instance, forMs: number): void {
    if (!instance.process.running) return;
    this.trace.add(instance.name, "paused", () => `for ${forMs} ms`);
    instance.process.pause();
    this.scheduler.after(forMs, () => this.resume(instance));
  }

  resume(instance: Instance): void {
    if (!instance.process.paused || instance.host.isAsleep) return;
    this.trace.add(instance.name, "resumed");
    instance.process.resume();
  }

  stepClock(host: Host, byMs: number): void {
    this.trace.add(host.name, "clock stepped", () => `by ${byMs} ms`);
    host.step(byMs);
  }

  /** Machines fall asleep with all their processes, and the store with its machine. Frozen ones do not notice. */
  sleep(hosts: readonly Host[], forMs: number, frozen: boolean): void {
    const { scheduler, trace, outage } = this;
    for (const host of hosts) {
      trace.add(host.name, frozen ? "frozen" : "asleep", () => `for ${forMs} ms`);
      host.sleep(frozen);
    }
    for (const instance of this.instances)
      if (instance.host.isAsleep && instance.process.alive) instance.process.pause();
    if (hosts.includes(this.truth.tables.host)) {
      outage.of = null;
      outage.until = Math.max(outage.until, scheduler.now + forMs);
    }
    scheduler.after(forMs, () => this.wake(hosts));
  }

  wake(hosts: readonly Host[]): void {
    for (const host of hosts) {
      if (!host.isAsleep) continue;
      this.trace.add(host.name, "awake");
      host.wake();
      for (const instance of this.instances) if (instance.host === host) this.resume(instance);
    }
  }

  /** Instances that accept requests. */
  open(): Instance[] {
    return this.instances.filter((instance) => instance.fleet !== null && instance.process.alive && !instance.closing);
  }

  checkSpin(): void {
    const { events, isSpent } = this.scheduler;
    this.findings.check("run-ends", !isSpent, () => `${events} events`);
  }

  threw(error: unknown): void {
    if (error instanceof PlantedError) return;
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    this.findings.check("nothing-thrown", false, () => text);
  }

  #liveness(asking: Instance, identity: ProcessIdentity): Liveness {
    const { bootId, pidNamespace, pid, startTime } = identity;
    const mine = asking.process.identity;
    if (bootId !== mine.bootId || pidNamespace !== mine.pidNamespace) return "unknown";
    if (this.faults.hits("liveness-unknown")) return "unknown";
    const found = this.instances.find(
      ({ process }) => process.identity.pid === pid && process.identity.startTime === startTime,
    );
    if (found === undefined || found.process.alive) return found === undefined ? "dead" : "alive";
    asking.toldDead.add(found.id);
    return "dead";
  }
}
