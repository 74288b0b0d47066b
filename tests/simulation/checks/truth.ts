/**
 * The truth as the simulation knows it: the store's rows, the engine's ledger, every instance, every lease of a caller,
 * and every request of a caller. Checks compare these with one another. None uses the fleet's own logic, which would
 * share its mistakes.
 */

import type { Generation, InstanceId, LeaseId, LossReason, Sandbox, SandboxId } from "@sandlot/contract";
import type { Settings } from "../../../packages/fleet/src/config/settings.ts";
import type { Lease } from "../../../packages/fleet/src/fleet.ts";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import type { Engines } from "../engine/engines.ts";
import type { EngineLedger, SimObject } from "../engine/ledger.ts";
import type { Faults } from "../faults.ts";
import type { Instance } from "../process/instance.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import type { StoreStep } from "../store/sim-store.ts";
import type { WatchedTables } from "../store/watched-tables.ts";
import { LostHomes } from "./lost-homes.ts";

/** A lease as its caller sees it. */
export class HeldLease {
  readonly lease: Lease;
  readonly instance: Instance;
  /** `user/thread`, or `null` for a sandbox without a thread. */
  readonly owner: string | null;
  readonly since: number;
  readonly remote: boolean;
  readonly #row: () => RemoteTruth | undefined;
  releasedAt: number | null = null;
  lost: {
    readonly reason: LossReason;
    readonly at: number;
    readonly generation: Generation;
    readonly storeFailedAt: number;
  } | null = null;
  /** A forced destroy ended its sandbox while it was held. */
  forced: { readonly at: number; readonly pausedMs: number } | null = null;
  /** The session ended, or the store was lost, since the hold was taken: the instance may have to take it again. */
  interrupted = false;
  /** The sandbox object the caller took from the lease; a restart makes it stale, and the caller may still use it. */
  kept: Sandbox | null = null;

  constructor(
    parts: Pick<HeldLease, "lease" | "instance" | "owner" | "since" | "remote">,
    row: () => RemoteTruth | undefined = () => undefined,
  ) {
    this.#row = row;
    this.lease = parts.lease;
    this.instance = parts.instance;
    this.owner = parts.owner;
    this.since = parts.since;
    this.remote = parts.remote;
  }

  /** The row of a remote lease ended, or a caller requested its end. */
  get isRowOver(): boolean {
    const row = this.#row();
    return this.remote && row !== undefined && (row.ended || row.releaseAsked);
  }

  // A restart gives a lease another sandbox, so both are read each time.
  get sandboxId(): SandboxId {
    return this.lease.sandbox.id;
  }

  get generation(): Generation {
    return this.lease.generation;
  }

  /** Not released at any instance, not expired, and not reported lost. */
  get active(): boolean {
    return this.releasedAt === null && this.instance.process.alive && !this.isRowOver && !this.isToldLost;
  }

  /** Its holder got the report that its sandbox is lost. */
  get isToldLost(): boolean {
    return this.lost !== null && this.lost.generation === this.generation;
  }
}

export interface RemoteTruth {
  readonly leaseId: LeaseId;
  readonly ttlMs: number;
  /** Since when its row exists: the row goes with its sandbox, and returns with the next one. */
  since: number;
  /** When it was last granted or renewed. */
  heardAt: number;
  /** A caller requested its release. */
  releaseAsked: boolean;
  ended: boolean;
  /** When its row was last removed with its sandbox; `null`: never. */
  goneAt: number | null;
}

/** Where a thread lives. */
interface ThreadPlace {
  readonly engine: string | null;
  readonly at: number;
  readonly isSettled: boolean;
}

/** The requests of callers for one thread. */
export interface ThreadTruth {
  readonly owner: string;
  /** Acknowledged writes that must exist, with the moment of their acknowledgement. */
  readonly acknowledged: Map<string, number>;
  /** Instances that got a request to destroy it by force, or with purge. */
  readonly forcedBy: Set<string>;
  /** When a purge of its workspace was last requested; -1: never. */
  purgeAskedAt: number;
  destroyAsked: boolean;
  /** The latest leased generation. */
  latestLeased: number;
  /** The engine of that generation; `null`: unknown. */
  latestEngine: string | null;
  /** The blueprints of its records so far. */
  readonly blueprints: Set<string>;
}

export class Truth {
  readonly scheduler: Scheduler;
  readonly tables: WatchedTables;
  readonly ledger: Engines;
  readonly settings: Settings;
  readonly faults: Faults;
  readonly instances = new Map<InstanceId, Instance>();
  readonly leases = new Set<HeldLease>();
  /** Sandboxes that were leased at least once. */
  readonly leased = new Set<SandboxId>();
  readonly remotes = new Map<LeaseId, RemoteTruth>();
  readonly threads = new Map<string, ThreadTruth>();
  /** The owner of each sandbox; an owned sandbox never changes its owner. */
  readonly owners = new Map<SandboxId, string>();
  /** Since when it has its owner: a blank is created before it is bound. */
  readonly ownedSince = new Map<SandboxId, number>();
  /** Sandboxes that were ready once. */
  readonly published = new Set<SandboxId>();
  /** Sandboxes that were stopped by force. */
  readonly forcedStops = new Set<SandboxId>();
  /** When each record was written first, in the present store. */
  readonly recordedAt = new Map<SandboxId, number>();
  /** When a record moved to stopping; its holders learn of it later. */
  readonly stoppedAt = new Map<SandboxId, number>();
  /** The generation that wrote each token, as the engine saw it. */
  readonly writes = new Map<string, Generation>();
  /** Everything that purges ever removed. */
  readonly purgedTokens = new Set<string>();
  /** When the present store ended the recovery of an engine. Runs with one engine have one entry. */
  readonly recoveredAt = new Map<string, number>();
  /** The engine of each sandbox, by the instance that first recorded it. */
  readonly engines = new Map<SandboxId, string>();
  /**
   * The engine of each thread, and when that last changed. A first record ties its thread to its engine while it exists;
   * the thread is settled there when a sandbox was ready, and until it is purged.
   */
  readonly homes = new Map<string, ThreadPlace>();
  /** When the present store first had a session with an engine. */
  readonly firstReachedAt = new Map<string, number>();
  /** The store's clock at that moment; absent where a failover may have left an earlier one. */
  readonly firstReachedClock = new Map<string, number>();
  /** When the first session with an engine began, and when the last one ended. */
  readonly reach = new Map<string, { gainedAt: number; lostAt: number }>();
  /**
   * How far before its effect a step may have read the store's clock. Where steps run at the instances, it is the time
   * that a step may take and the longest way of the answer by which the instance knows the clock.
   */
  clockLagMs = 0;
  /**
   * When the clock of the store's server was last set. From then on nothing tells the true age of what an earlier time
   * was written for, and checks of ages are left out.
   */
  storeClockSetAt = Number.NEGATIVE_INFINITY;
  /** When it was set, first to last. */
  readonly storeClockSteps: number[] = [];
  /** Threads whose home was lost with the last writes of the store. */
  readonly lostHomes = new LostHomes();
  /** Whether what is written on this engine stays there, because its thread has left it (`rewind-exceptions.ts`). */
  staysBehind: (owner: string, engine: string) => boolean = () => false;
  /** When the present epoch of the store began. */
  recoveringSince = 0;
  /** When the store last lost its last writes: what an instance was told before may have been of another epoch. */
  rewoundAt = Number.NEGATIVE_INFINITY;
  /** Parked sandboxes whose last use was lost with the last writes, and since when the store has them parked. */
  readonly parkedAtKept = new Map<SandboxId, number>();
  /** When the store was last emptied. */
  emptiedAt = Number.NEGATIVE_INFINITY;

  constructor(parts: Pick<Truth, "scheduler" | "tables" | "ledger" | "settings" | "faults">) {
    this.scheduler = parts.scheduler;
    this.tables = parts.tables;
    this.ledger = parts.ledger;
    this.settings = parts.settings;
    this.faults = parts.faults;
  }

  get now(): number {
    return this.scheduler.now;
  }

  /** A moment on the store's clock as a moment of the simulation: the latest possible one, if its host slept. */
  fromStoreClock(at: number): number {
    const { host } = this.tables;
    return host.awakeSince(host.agoMs(host.monotonicMs() - (this.tables.now() - at)));
  }

  /** Whether times in the store's rows can be compared with the truth. */
  get isClockSteady(): boolean {
    return this.storeClockSetAt === Number.NEGATIVE_INFINITY;
  }

  /**
   * Whether times that the store wrote at these two moments are in order. An instance learns of a set clock with its next
   * answer, and writes by the former one until then.
   */
  isClockSteadyBetween(from: number, to: number): boolean {
    const { sessionLifetimeMs } = this.settings;
    return !this.storeClockSteps.some((at) => at > from - sessionLifetimeMs && at <= to);
  }

  /** How far an instance's idea of the store's clock may be ahead, because that clock stood or was set back. */
  clockLeadMs({ by, heard = by.storeHeard }: Pick<StoreStep, "by" | "heard">): number {
    if (heard === null) return 0;
    // An answer that was long in transit does not contradict the clock of the faster one before it.
    const { sessionLifetimeMs } = this.settings;
    const stoodMs = sessionLifetimeMs - this.awakeMs(this.now - sessionLifetimeMs);
    return Math.max(stoodMs, this.now - heard.at - (this.tables.now() - heard.clock));
  }

  /** The store was lost since, perhaps after the last look, and does not know yet what exists. */
  isBlind(asked: { readonly at: number; readonly instance: Instance }): boolean {
    return this.emptiedAt >= asked.at && !this.recoveredAt.has(asked.instance.engine);
  }

  /** The thread has settled on an engine. What it had on one that a lost home named stays there: how many writes. */
  leaveBehind(owner: string, engine: string): number {
    if (!this.lostHomes.settled(owner, engine)) return 0;
    const { acknowledged } = this.thread(owner);
    const left = acknowledged.size;
    acknowledged.clear();
    return left;
  }

  /** Whether a thread lives on another engine than this one. */
  isElsewhere(owner: string, engine: string): boolean {
    const home = this.homes.get(owner)?.engine ?? null;
    return this.tables.isShared && home !== null && home !== engine;
  }

  /** As far as the engine's own limit goes. */
  hasRoomOn(engine: string): boolean {
    const { maxPerEngine } = this.settings.limits;
    return (
      maxPerEngine === 0 || this.tables.records().filter((record) => record.engine === engine).length < maxPerEngine
    );
  }

  /** The ledger of the record's engine. */
  ledgerOf({ engine }: Pick<SandboxRecord, "engine">): EngineLedger {
    return this.ledger.of(engine);
  }

  /** Engines with a session. */
  reachable(): ReadonlySet<string> {
    return new Set(this.tables.sessions().flatMap(({ engines }) => engines));
  }

  /** How long the store's host was awake in between: the span its clock counts. */
  awakeMs(since: number, until = this.now): number {
    return this.tables.host.awakeMs(since, until);
  }

  thread(owner: string): ThreadTruth {
    let thread = this.threads.get(owner);
    if (thread === undefined) {
      thread = {
        owner,
        acknowledged: new Map(),
        forcedBy: new Set(),
        purgeAskedAt: -1,
        destroyAsked: false,
        latestLeased: 0,
        latestEngine: null,
        blueprints: new Set(),
      };
      this.threads.set(owner, thread);
    }
    return thread;
  }

  objectOf(record: Pick<SandboxRecord, "ref">): SimObject | undefined {
    return record.ref === null ? undefined : this.ledger.objects.get(record.ref);
  }

  /** Whether a write is in any workspace. */
  isPresent(token: string): boolean {
    const { homes, slots } = this.ledger;
    for (const home of homes.values()) if (home.tokens.has(token)) return true;
    for (const slot of slots.values()) if (slot.workspace?.tokens.has(token) === true) return true;
    return false;
  }

  *objectsOf(sandboxId: SandboxId): Generator<SimObject> {
    for (const object of this.ledger.objects.values()) if (object.labels.sandboxId === sandboxId) yield object;
  }

  /** Leases that are neither released nor reported lost. */
  *activeLeases(sandboxId: SandboxId, generation: number): Generator<HeldLease> {
    for (const held of this.leases) {
      if (held.sandboxId === sandboxId && held.generation === generation && held.active) yield held;
    }
  }

  hasHold(instance: Instance, sandboxId: SandboxId, generation: number): boolean {
    return this.tables.record(sandboxId)?.holders[instance.id]?.generation === generation;
  }

  /** Whether an instance with every right to a lease can use it at this moment. */
  isUsable(held: HeldLease): boolean {
    const { instance } = held;
    if (!held.active || held.interrupted || !instance.process.running) return false;
    if (this.tables.session(instance.id) === null) return false;
    for (const object of this.objectsOf(held.sandboxId)) {
      if (object.alive && object.generation === held.generation) return true;
    }
    return false;
  }

  /** How many sandboxes a user may have; 0: limited by the fleet's room only. */
  userMax(user: string | null): number {
    const { maxPerUser, users = {} } = this.settings.limits;
    return user === null ? 0 : (users[user]?.max ?? maxPerUser);
  }

  unexpired(remote: RemoteTruth | undefined): boolean {
    return remote !== undefined && !remote.ended && this.now - remote.heardAt < remote.ttlMs;
  }
}

export function ownerOf(record: Pick<SandboxRecord, "user" | "thread">): string | null {
  return record.user === null || record.thread === null ? null : `${record.user}/${record.thread}`;
}
