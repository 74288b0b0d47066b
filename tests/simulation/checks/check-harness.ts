/**
 * A harness for the checks: a store, a ledger and instances that a test can put into any wrong state, to prove that the
 * responsible check notices.
 */

import type { EngineRef, FleetId, Generation, InstanceId, SandboxId, ThreadId, Token, UserId } from "@sandlot/contract";
import type { CreateSpec } from "../../../packages/fleet/src/backend/backend.ts";
import type { Marker } from "../../../packages/fleet/src/backend/labels.ts";
import { threadKeyOf } from "../../../packages/fleet/src/backend/labels.ts";
import type { Settings } from "../../../packages/fleet/src/config/settings.ts";
import type { Lease } from "../../../packages/fleet/src/fleet.ts";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import { Engines } from "../engine/engines.ts";
import { EngineLedger, type SimObject } from "../engine/ledger.ts";
import { Faults } from "../faults.ts";
import { Calls } from "../process/calls.ts";
import { EPOCH_MS, Host } from "../process/host.ts";
import { Instance } from "../process/instance.ts";
import { Process } from "../process/process.ts";
import { SimWorld } from "../process/sim-world.ts";
import { Random } from "../schedule/random.ts";
import { Scheduler } from "../schedule/scheduler.ts";
import { WatchedTables } from "../store/watched-tables.ts";
import { drawSettings } from "../workload/draw-settings.ts";
import { EngineChecks } from "./engine-checks.ts";
import { FactChecks } from "./fact-checks.ts";
import { Findings } from "./findings.ts";
import { LeaseChecks } from "./lease-checks.ts";
import { LivenessChecks } from "./liveness-checks.ts";
import { PromiseChecks } from "./promise-checks.ts";
import { StoreChecks } from "./store-checks.ts";
import { HeldLease, Truth } from "./truth.ts";

export const USER = "ada" as UserId;
export const THREAD = "t1" as ThreadId;
export const OWNER = `${USER}/${THREAD}`;
export const BOX = "box" as SandboxId;
export const REF = "engine-1" as EngineRef;
export const GENERATION = (EPOCH_MS + 1) as Generation;
export const TOKEN = "token" as Token;
export const ENGINE = "engine";
/** The engine of `other`, on a bench with two. */
export const FAR = "far";

/** Fields of any state, also in impossible combinations. */
type Fields = { readonly [Key in keyof SandboxRecord]?: SandboxRecord[Key] };

export class Bench {
  readonly scheduler = new Scheduler(() => undefined);
  readonly tables: WatchedTables;
  readonly ledger = new EngineLedger(() => this.scheduler.now);
  readonly settings: Settings;
  readonly truth: Truth;
  readonly findings: Findings;
  readonly store: StoreChecks;
  readonly engine: EngineChecks;
  readonly lease: LeaseChecks;
  readonly liveness: LivenessChecks;
  readonly promises: PromiseChecks;
  readonly facts: FactChecks;
  readonly one: Instance;
  readonly other: Instance;

  /** With two engines the store is shared, and each engine has room for one sandbox. */
  constructor(settings: Partial<Settings> = {}, engines: 1 | 2 = 1) {
    const host = new Host({ name: "store", scheduler: this.scheduler });
    this.tables = new WatchedTables(host, () => "epoch", engines === 1 ? "memory" : "shared");
    const drawn = drawSettings(new Random(1));
    const limits = {
      ...drawn.limits,
      mode: "hard" as const,
      max: 2,
      maxPerUser: 1,
      users: {},
      maxPerEngine: engines - 1,
    };
    const times = { idleTimeoutMs: 10_000, maxLifetimeMs: 50_000, orphanTimeoutMs: 5_000, sessionLifetimeMs: 10_000 };
    this.settings = { ...drawn, ...times, limits, pool: { default: 1 }, housekeepingIntervalMs: 1_000, ...settings };
    const { scheduler, tables, ledger } = this;
    const faults = new Faults(new Random(1));
    const far = engines === 1 ? [] : [new EngineLedger(() => scheduler.now, FAR)];
    const all = new Engines([ledger, ...far]);
    this.truth = new Truth({ scheduler, tables, ledger: all, settings: this.settings, faults });
    this.findings = new Findings(() => scheduler.now);
    this.store = new StoreChecks(this.truth, this.findings);
    this.engine = new EngineChecks(this.truth, this.findings);
    this.lease = new LeaseChecks(this.truth, this.findings);
    this.liveness = new LivenessChecks(this.truth, this.findings);
    this.facts = new FactChecks(this.truth, this.findings);
    this.promises = new PromiseChecks(this.truth, this.findings);
    this.one = this.instance("one");
    this.other = this.instance("other", engines === 1 ? ENGINE : FAR);
    for (const { name } of all.all) tables.endRecovery(name);
    tables.watchedBy(this.store);
    for (const { id, process, engine } of [this.one, this.other]) {
      const about = { identity: process.identity, engines: [engine], address: null };
      tables.putSession({ ...about, instance: id, beat: 1, lastBeatAt: EPOCH_MS });
    }
  }

  instance(name: string, engine = ENGINE): Instance {
    const { scheduler } = this;
    const identity = { bootId: name, pidNamespace: name, pid: 1, startTime: "0" };
    const process = new Process(name, identity, scheduler);
    const host = new Host({ name, scheduler });
    const random = new Random(1);
    const world = new SimWorld({ process, host, scheduler, random, lookUp: () => "unknown" });
    const ignore = () => undefined;
    const calls = new Calls({ scheduler, random, process, count: ignore, onKilled: ignore, onPaused: ignore });
    const instance = new Instance({ id: name as InstanceId, process, host, engine, world, calls });
    this.truth.instances.set(instance.id, instance);
    return instance;
  }

  at(ms: number): this {
    this.scheduler.now = ms;
    return this;
  }

  /** Changes the rows as one store step. */
  step(
    by: Instance,
    method: string,
    args: readonly unknown[],
    change: (tables: WatchedTables) => void,
    result?: unknown,
  ): this {
    const step = { by, method, args, sentAt: this.scheduler.now, skewMs: by.host.skewMs, turn: this.scheduler.events };
    this.store.began(step);
    change(this.tables);
    this.store.ended(step, result ?? null);
    return this;
  }

  record(changes: Fields = {}): SandboxRecord {
    return {
      ...{ sandboxId: BOX, user: USER, thread: THREAD, revision: 1, generation: GENERATION, token: TOKEN, ref: REF },
      ...{
        state: "ready",
        actor: null,
        backend: "simulated",
        engine: ENGINE,
        blueprint: "default",
        place: "home",
        arrival: null,
      },
      blueprintHash: this.settings.blueprints.default?.hash ?? ("" as SandboxRecord["blueprintHash"]),
      ...{
        holders: {},
        leases: {},
        boundFrom: null,
        createdAt: EPOCH_MS,
        parkedAt: EPOCH_MS,
        purge: false,
        reason: null,
      },
      ...changes,
    } as SandboxRecord;
  }

  /** An existing record, as if a regular step had written it. */
  has(changes: Fields = {}, by = this.one): SandboxRecord {
    const record = this.record(changes);
    const method = record.state === "creating" ? "reserve" : record.state === "ready" ? "restore" : "claimForRemoval";
    this.step(by, method, [{}], (tables) => tables.putRecord(record));
    return record;
  }

  /** Writes the next revision of a record. */
  change(by: Instance, method: string, request: unknown, changes: Fields): this {
    const before = this.tables.record(BOX) ?? this.record();
    return this.step(by, method, [request], (tables) =>
      tables.putRecord({ ...before, revision: before.revision + 1, ...changes } as SandboxRecord),
    );
  }

  stop(kind: "unheld" | "dead" | "force", reason: SandboxRecord["reason"], by = this.one): this {
    const request = { mode: { kind, revision: 1 }, reason };
    return this.change(by, "stop", request, {
      state: "stopping",
      actor: by.id,
      holders: {},
      leases: {},
      parkedAt: null,
      reason,
    });
  }

  hold(by = this.one, seq = 1): SandboxRecord["holders"] {
    return { [by.id]: { generation: GENERATION, seq, since: EPOCH_MS } } as SandboxRecord["holders"];
  }

  spec(changes: Partial<CreateSpec> = {}): CreateSpec {
    const hash = this.settings.blueprints.default?.hash as Marker["blueprintHash"];
    const marker: Marker = {
      ...{ sandboxId: BOX, user: USER, thread: THREAD, generation: GENERATION, token: TOKEN },
      ...{ blueprint: "default", blueprintHash: hash },
    };
    const labels = { fleet: this.settings.fleetId, sandboxId: BOX, generation: GENERATION, blueprintHash: hash };
    return {
      ...{ generation: GENERATION, token: TOKEN, marker, blueprint: {} as CreateSpec["blueprint"] },
      labels: { ...labels, threadKey: threadKeyOf(USER, THREAD) },
      ...changes,
    };
  }

  /** The sandbox in the engine. */
  object(by = this.one): SimObject {
    const { ref } = this.ledger.create(this.spec(), by.name);
    return this.ledger.objects.get(ref) as SimObject;
  }

  foreign(): SimObject {
    return this.ledger.plant("next-door" as FleetId, "foreign" as SandboxId);
  }

  held(changes: { generation?: Generation; sandboxId?: SandboxId; recovery?: string } = {}, by = this.one): HeldLease {
    const sandbox = { id: changes.sandboxId ?? BOX };
    const recovery = { kind: changes.recovery ?? "same" };
    const lease = { id: `${by.name}-lease`, sandbox, generation: changes.generation ?? GENERATION, recovery };
    const held = new HeldLease({
      lease: lease as unknown as Lease,
      instance: by,
      owner: OWNER,
      since: 0,
      remote: false,
    });
    this.truth.leases.add(held);
    return held;
  }

  asked(changes: { at?: number; timeoutMs?: number } = {}) {
    return { instance: this.one, owner: OWNER, at: 0, pausedMs: 0, timeoutMs: 1_000, ...changes };
  }

  /** Names of the violated invariants. */
  get violated(): Set<string> {
    return new Set(this.findings.violations.map(({ invariant }) => invariant));
  }
}
