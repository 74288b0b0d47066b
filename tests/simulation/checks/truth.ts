/**
 * What is true, as the simulation knows it: the rows of the store, the ledger of the engine, every instance, every
 * lease that callers hold, and what callers have asked for. Checks compare these with one another; none of them uses
 * the fleet's own logic, which would share its mistakes.
 */

import type { Generation, InstanceId, LeaseId, LossReason, Sandbox, SandboxId } from "@sandlot/contract";
import type { Settings } from "../../../packages/fleet/src/config/settings.ts";
import type { Lease } from "../../../packages/fleet/src/fleet.ts";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import type { EngineLedger, SimObject } from "../engine/ledger.ts";
import type { Faults } from "../faults.ts";
import type { Instance } from "../process/instance.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import type { WatchedTables } from "../store/watched-tables.ts";

/** A lease as its caller has it. */
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
  /** Its sandbox was destroyed by force, while it was held. */
  forced: { readonly at: number; readonly pausedMs: number } | null = null;
  /** The session ended, or the store was lost, since the hold was taken: it may have to be taken again. */
  interrupted = false;
  /** What the caller took from the lease once, and may still use after a restart has made it stale. */
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

  /** The row of a remote lease ended, or its end was asked for. */
  get isRowOver(): boolean {
    const row = this.#row();
    return this.remote && row !== undefined && (row.ended || row.releaseAsked);
  }

  // A restart gives a lease another sandbox, so both are asked for each time.
  get sandboxId(): SandboxId {
    return this.lease.sandbox.id;
  }

  get generation(): Generation {
    return this.lease.generation;
  }

  /** Not given back, at this instance or another, not run out, and not told to be lost. */
  get active(): boolean {
    return this.releasedAt === null && this.instance.process.alive && !this.isRowOver && !this.isToldLost;
  }

  /** Its holder was told that the sandbox it has is lost. */
  get isToldLost(): boolean {
    return this.lost !== null && this.lost.generation === this.generation;
  }
}

export interface RemoteTruth {
  readonly leaseId: LeaseId;
  readonly ttlMs: number;
  /** Since when its row is there: it goes with its sandbox, and comes back with the next one. */
  since: number;
  /** When it was granted or renewed last. */
  heardAt: number;
  /** A release of it was asked for. */
  releaseAsked: boolean;
  ended: boolean;
  /** When its row last went with its sandbox; `null`: never. */
  goneAt: number | null;
}

/** What callers have asked for one thread. */
export interface ThreadTruth {
  readonly owner: string;
  /** Acknowledged writes that must be there, with the moment of their acknowledgement. */
  readonly acknowledged: Map<string, number>;
  /** Instances that were asked to destroy it by force, or with purge. */
  readonly forcedBy: Set<string>;
  /** When its workspace was last asked to go; -1: never. */
  purgeAskedAt: number;
  destroyAsked: boolean;
  /** The latest generation a lease was handed out on. */
  latestLeased: number;
  /** Of which blueprints it has had records. */
  readonly blueprints: Set<string>;
}

export class Truth {
  readonly scheduler: Scheduler;
  readonly tables: WatchedTables;
  readonly ledger: EngineLedger;
  readonly settings: Settings;
  readonly faults: Faults;
  readonly instances = new Map<InstanceId, Instance>();
  readonly leases = new Set<HeldLease>();
  /** Sandboxes that somebody had a lease on. */
  readonly leased = new Set<SandboxId>();
  readonly remotes = new Map<LeaseId, RemoteTruth>();
  readonly threads = new Map<string, ThreadTruth>();
  /** Whose a sandbox is; once it is somebody's it stays so. */
  readonly owners = new Map<SandboxId, string>();
  /** Since when it is theirs: a blank is made before it is bound. */
  readonly ownedSince = new Map<SandboxId, number>();
  /** Sandboxes that were ready once. */
  readonly published = new Set<SandboxId>();
  /** Sandboxes that were stopped by force. */
  readonly forcedStops = new Set<SandboxId>();
  /** When a record was moved to stopping; whoever held it hears of it later. */
  readonly stoppedAt = new Map<SandboxId, number>();
  /** Which generation the engine saw writing each token. */
  readonly writes = new Map<string, Generation>();
  /** Everything that was ever removed by a purge. */
  readonly purgedTokens = new Set<string>();
  /** When the recovery of the present store ended; `null`: it has not. */
  recoveredAt: number | null = null;
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

  /** A moment on the store's clock as a moment of the simulation: the last one that it can be, if its host slept. */
  fromStoreClock(at: number): number {
    const { host } = this.tables;
    return host.awakeSince(host.agoMs(host.monotonicMs() - (this.tables.now() - at)));
  }

  /** The store was lost since, perhaps after the last look, and does not know yet what exists. */
  isBlind(asked: { readonly at: number }): boolean {
    return this.emptiedAt >= asked.at && this.recoveredAt === null;
  }

  /** How long the store's host was awake in between: what its clock counts. */
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
        blueprints: new Set(),
      };
      this.threads.set(owner, thread);
    }
    return thread;
  }

  objectOf(record: Pick<SandboxRecord, "ref">): SimObject | undefined {
    return record.ref === null ? undefined : this.ledger.objects.get(record.ref);
  }

  *objectsOf(sandboxId: SandboxId): Generator<SimObject> {
    for (const object of this.ledger.objects.values()) if (object.labels.sandboxId === sandboxId) yield object;
  }

  /** Leases that their callers have not given back and were not told to have lost. */
  *activeLeases(sandboxId: SandboxId, generation: number): Generator<HeldLease> {
    for (const held of this.leases) {
      if (held.sandboxId === sandboxId && held.generation === generation && held.active) yield held;
    }
  }

  hasHold(instance: Instance, sandboxId: SandboxId, generation: number): boolean {
    return this.tables.record(sandboxId)?.holders[instance.id]?.generation === generation;
  }

  /** Whether a lease can be used at this moment, by an instance that has every right to. */
  isUsable(held: HeldLease): boolean {
    const { instance } = held;
    if (!held.active || held.interrupted || !instance.process.running) return false;
    if (this.tables.session(instance.id) === null) return false;
    for (const object of this.objectsOf(held.sandboxId)) {
      if (object.alive && object.generation === held.generation) return true;
    }
    return false;
  }

  /** How many sandboxes a user may have; 0: as many as there is room for. */
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
