/**
 * The store contract: the one authority on which sandboxes exist, who holds them and who is alive.
 *
 * Each method is one atomic step: no caller reads in one step and decides in another, so no decision rests on old state.
 * A caller that acts on an earlier read passes the `revision` it read; losing is an ordinary answer, not an exception.
 *
 * A worked example, two instances and one thread:
 *
 *   A: take({ u, t, orReserve })  → reserved        the key is claimed, the room is counted, a generation is given
 *   B: take({ u, t, orReserve })  → other           an ordinary answer: B waits for A's sandbox and shares it
 *   A: publish({ …, hold: 7 })    → record          ready, A is a holder
 *   B: take({ u, t, orReserve })  → held            two holders
 *   A: unhold({ … })              → record          B still holds it, so it is not parked
 *   C: stop({ mode: "unheld" })   → held            refused inside the transaction that looked
 *
 * Rules for every implementation (each is a test of `testing/store-suite.ts`)
 * - Times are the store's own clock; callers never send one.
 * - A step that names an instance as actor or holder requires that its session exists (`unknown-session`, or an answer
 *   that says it lost): an instance whose session was ended takes, makes and stops nothing until it registers again.
 * - A hold that ends without its own `unhold` (its session ended, a beat healed it) counts as used.
 * - Lists and `lost` are in no particular order.
 * - Nothing survives half: a crash at any moment leaves the state before or after a method, never between.
 * - A store that cannot answer rejects with `store_unavailable`; the step may have happened nevertheless.
 * - `watch` is a hint. It may fire too often, too early, or not at all; listeners must read again.
 *
 * Engines. Hosts that share a store may each have an engine of their own, which only its sessions reach.
 * - A thread has its sandboxes on one engine, its home, until it is purged. A record changes its state only by an
 *   instance whose session lists the record's engine. Everyone else is answered `elsewhere`.
 * - Each engine recovers by itself after a loss of the store.
 * - A store that is not shared serves one host: every session reaches every record, threads have no home, and all
 *   recover together.
 */

import type {
  BlueprintHash,
  CapacityCounts,
  EngineRef,
  Epoch,
  Generation,
  InstanceId,
  LeaseId,
  SandboxId,
  StopReason,
  ThreadId,
  Token,
  UserId,
} from "@sandlot/contract";
import type { Place } from "../backend/backend.ts";
import type { RestoreTarget } from "../backend/checkpoints.ts";
import type { SharedEntries } from "./entries.ts";
import type {
  ActingRecord,
  Arrival,
  CreatingRecord,
  ReadyRecord,
  RemoteLease,
  SandboxRecord,
  StoppingRecord,
  Tombstone,
} from "./record.ts";
import type { AdoptRequest, ClaimForRemovalRequest, RejoinRequest, RestoreRequest } from "./recovery-requests.ts";
import type { BeatAnswer, BeatRequest, Session } from "./session.ts";
import type { ObservableSteps } from "./step-observer.ts";
import type { Elsewhere, LocateRequest, ThreadPlace } from "./thread-place.ts";
import type { StoreTransfer } from "./transfer/store-transfer.ts";

export type {
  AdoptRequest,
  ClaimForRemovalRequest,
  RejoinHold,
  RejoinRequest,
  RestoreRequest,
} from "./recovery-requests.ts";
export type { BeatAnswer, BeatRequest, Session } from "./session.ts";
export type { Elsewhere, LocateRequest, ThreadPlace } from "./thread-place.ts";

/** The steps of moving to another store are `StoreTransfer`. */
export interface Store extends StoreTransfer, ObservableSteps {
  readonly kind: string;
  /** Whether a failover can lose answered steps. It is then noticed, and the store begins a new epoch. */
  readonly promise: "linearizable" | "may-rewind";
  /** Texts that all gateways of this store share; `null` where the store is one host's. */
  readonly entries: SharedEntries | null;
  /** Whether hosts with different engines can use it. */
  readonly isShared: boolean;

  // Sessions: who is alive.
  /** Renews (or with `register` begins) a session, heals lost releases, and returns the lost holds. */
  beat(request: BeatRequest): Promise<BeatAnswer>;
  sessions(): Promise<readonly Session[]>;
  /** Ends a peer's session if its beat is still the one that was judged dead. Removes its holds in the same step. */
  endDeadSession(peer: InstanceId, beat: number): Promise<boolean>;
  /** Ends the caller's own session, and its holds. */
  leave(instance: InstanceId): Promise<void>;

  // Reading.
  /** `engine` is the one whose recovery is meant. A store that is not shared ignores it. */
  meta(engine?: string): Promise<StoreMeta>;
  /** Where a thread lives, for an instance that reaches these engines. */
  locate(request: LocateRequest): Promise<ThreadPlace>;
  get(sandboxId: SandboxId): Promise<SandboxRecord | null>;
  find(user: UserId, thread: ThreadId): Promise<SandboxRecord | null>;
  list(filter?: ListFilter): Promise<readonly SandboxRecord[]>;
  /** How many there are of each kind, without reading every record. */
  census(): Promise<Census>;
  tombstone(sandboxId: SandboxId): Promise<Tombstone | null>;
  /** Ended sandboxes that match, the newest first; at most `ENDED_MAX`. */
  tombstones(filter: TombstoneFilter): Promise<readonly Tombstone[]>;

  // absent → creating → ready
  /** Claims the thread's key, counts against the limits and writes the intent, all before the call to the engine. */
  reserve(request: ReserveRequest): Promise<ReserveAnswer>;
  /** creating → ready, by the present actor. `null`: the caller no longer is. */
  publish(request: PublishRequest): Promise<ReadyRecord | null>;

  // ready: holding
  /**
   * The first step of an acquire. The caller becomes a holder of the thread's sandbox if it is ready. For a thread
   * without one it picks a blank, with a generation for binding it; without a blank it reserves.
   */
  take(request: TakeRequest): Promise<TakeAnswer>;
  hold(request: HoldRequest): Promise<HoldAnswer>;
  /** Ends exactly this hold. Returns the present record, or `null` when there is none. A late call never fails. */
  unhold(request: UnholdRequest): Promise<SandboxRecord | null>;

  // ready: binding a blank to a thread
  bind(request: BindRequest): Promise<BindAnswer>;
  /** The workspace is in place and the daemon knows its new generation. */
  confirmBound(sandboxId: SandboxId, generation: Generation, arrival: Arrival): Promise<void>;

  // → stopping → absent
  stop(request: StopRequest): Promise<StopAnswer>;
  /**
   * Becomes the actor of a record whose actor's session is gone; a record in `creating` moves to `stopping`. An actor may
   * take its own stop again: the revision rises, and a removal that it has given up no longer applies.
   */
  takeOver(request: TakeOverRequest): Promise<StoppingRecord | null>;
  /** stopping → absent: the engine has confirmed that nothing is left. False: the caller no longer may remove it. */
  remove(request: { sandboxId: SandboxId; revision: number; actor: InstanceId }): Promise<boolean>;

  // Remote leases.
  grantLease(request: GrantLeaseRequest): Promise<boolean>;
  renewLease(leaseId: LeaseId): Promise<RemoteLeaseView | null>;
  findLease(leaseId: LeaseId): Promise<RemoteLeaseView | null>;
  /** The record of the lease, or `null` when there was no such lease. */
  releaseLease(leaseId: LeaseId): Promise<ReadyRecord | null>;
  /** Ends a lease if it is unchanged since it was judged over. */
  expireLease(leaseId: LeaseId, seen: LeaseSeen): Promise<boolean>;

  // After the store was lost.
  /**
   * Puts back a sandbox that the caller holds: the remembered record if the store has none, otherwise one more hold.
   * Rows of remote leases come back with a new beat, because renewals may have been lost with the store.
   */
  restore(request: RestoreRequest): Promise<HoldAnswer>;
  /**
   * `hold` and `restore` for everything that an instance holds, in one step: its session must not run out meanwhile.
   * Nothing in it is newly held, so a store that recovers does not refuse it. Answers in the order of `holds`.
   */
  rejoin(request: RejoinRequest): Promise<readonly HoldAnswer[]>;
  /** Takes in, as parked, a sandbox that the engine shows and whose marker proves its thread. Counts against limits. */
  adopt(request: AdoptRequest): Promise<boolean>;
  /**
   * Writes a `stopping` record for an object without one, so that only one instance ends it and none adopts it. With
   * `purge` it waits (`null`) until recovery is over: until then the thread may yet turn out to have a sandbox.
   */
  claimForRemoval(request: ClaimForRemovalRequest): Promise<StoppingRecord | null>;
  /** Ends the recovery of an engine if the store's epoch is still this one. A store that is not shared ends it for all. */
  endRecovery(epoch: Epoch, engine: string): Promise<void>;

  /** Calls `hint` when something may have changed. Returns an unsubscribe function. */
  watch(hint: () => void): () => void;
  close(): Promise<void>;
}

export interface StoreMeta {
  readonly epoch: Epoch;
  /** The store is new; during recovery it serves only holders that re-register. */
  readonly recovering: boolean;
}

export type ListFilter =
  | { readonly blankOf: string }
  | { readonly parked: true }
  /** Ready and without holders: the blanks and the parked. */
  | { readonly unheld: true }
  /** With at least one remote lease. */
  | { readonly leased: true }
  /** Records in `creating` or `stopping`: the work of a present or former actor. */
  | { readonly acting: true };

/** By the prefix of an id, or the sandboxes of one thread. */
export type TombstoneFilter = { readonly idPrefix: string } | { readonly user: UserId; readonly thread: ThreadId };

/** Enough to show that the prefix of an id is ambiguous. */
export const ENDED_MAX = 10;

export type Census = Omit<CapacityCounts, "queued">;

/** `null` means no limit. */
export interface Limits {
  readonly max: number | null;
  readonly maxPerUser: number | null;
  readonly maxPerEngine: number | null;
}

export interface NewRecord {
  readonly sandboxId: SandboxId;
  readonly token: Token;
  readonly backend: string;
  readonly engine: string;
  readonly blueprint: string;
  readonly blueprintHash: BlueprintHash;
}

/** Without a key it reserves a blank. */
export interface ReserveRequest extends NewRecord {
  readonly key: { readonly user: UserId; readonly thread: ThreadId } | null;
  readonly actor: InstanceId;
  readonly limits: Limits;
}

export type Refusal =
  | {
      readonly kind: "full";
      readonly scope: "fleet" | "engine" | "user";
      readonly max: number;
      readonly counts: Census;
    }
  | { readonly kind: "recovering"; readonly epoch: Epoch }
  | { readonly kind: "unknown-session" };

export type ReserveAnswer =
  | { readonly kind: "reserved"; readonly record: CreatingRecord }
  | { readonly kind: "exists"; readonly record: SandboxRecord }
  | Elsewhere
  | Refusal;

export interface PublishRequest {
  readonly sandboxId: SandboxId;
  readonly revision: number;
  readonly actor: InstanceId;
  readonly ref: EngineRef;
  readonly place: Place;
  /** `null` for a blank. */
  readonly arrival: Arrival | null;
  /** The counter of the hold to take with it; `null` publishes it parked, or blank. */
  readonly hold: number | null;
}

export interface HoldRequest {
  readonly sandboxId: SandboxId;
  readonly generation: Generation;
  readonly instance: InstanceId;
  readonly seq: number;
}

export interface UnholdRequest extends HoldRequest {
  /** The hold had a lease: the next caller gets a used sandbox. */
  readonly used: boolean;
}

export type HoldAnswer =
  | { readonly kind: "held"; readonly record: ReadyRecord }
  /** No longer `ready` in this generation; the present record. */
  | { readonly kind: "gone"; readonly record: SandboxRecord | null }
  | Exclude<Refusal, { kind: "full" }>;

export interface TakeRequest {
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly instance: InstanceId;
  readonly seq: number;
  /** The blanks that a thread without a sandbox may get; `null`: none. `except` are being bound already. */
  readonly blank: { readonly blueprintHash: BlueprintHash; readonly except: readonly SandboxId[] } | null;
  /** The reservation for a thread that has neither a sandbox nor a blank; `null`: none. */
  readonly orReserve: (NewRecord & { readonly limits: Limits }) | null;
}

export type TakeAnswer =
  | { readonly kind: "held"; readonly record: ReadyRecord }
  /** A blank to bind under this generation. Nothing is claimed yet: `bind` may find that it was taken meanwhile. */
  | { readonly kind: "blank"; readonly record: ReadyRecord; readonly generation: Generation }
  | { readonly kind: "reserved"; readonly record: CreatingRecord }
  /** The thread's sandbox is not ready; or it has none (`null`), and nothing requested is available. */
  | { readonly kind: "other"; readonly record: ActingRecord | null }
  | Elsewhere
  /** `full` only if a reservation was requested. */
  | Refusal;

export interface BindRequest {
  readonly sandboxId: SandboxId;
  /** The revision of the picked blank. */
  readonly revision: number;
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly generation: Generation;
  readonly token: Token;
  readonly instance: InstanceId;
  readonly seq: number;
  readonly maxPerUser: number | null;
}

export type BindAnswer =
  | { readonly kind: "bound"; readonly record: ReadyRecord }
  /** Another caller took the blank, or the thread has had a later generation than the requested one. */
  | { readonly kind: "taken" }
  /** The thread has a sandbox by now. */
  | { readonly kind: "exists"; readonly record: SandboxRecord }
  | Elsewhere
  | Refusal;

export interface StopRequest {
  readonly sandboxId: SandboxId;
  readonly generation: Generation;
  readonly actor: InstanceId;
  readonly reason: StopReason;
  readonly purge: boolean;
  /** The home in the workspace is emptied. Only for a ready sandbox; another state does not take it on. */
  readonly emptyHome?: boolean;
  /** The workspace is changed to a checkpoint. Only for a ready sandbox; another state does not take it on. */
  readonly restore?: RestoreTarget;
  /**
   * - `unheld`: only without holders, and only if `revision` is still this one. For everything that is planned.
   *   `createdAt` tells the record from one of the same revision that a later epoch of the store has adopted.
   *   While the store recovers, the holders are unknown, so it is `lost`.
   * - `dead`: the engine says this generation is dead, so its holds mean nothing any more.
   * - `force`: the caller insists.
   * - `abandon`: the actor of a `creating` record gives up.
   * - `cancel`: a record in `creating` takes note that it is to end as soon as it is made. Its revision rises, so that
   *   its maker cannot publish it and undoes it; an instance that takes over from the maker finds the note too.
   */
  readonly mode:
    | { readonly kind: "unheld"; readonly revision: number; readonly createdAt: number }
    | { readonly kind: "dead" }
    | { readonly kind: "force" }
    | { readonly kind: "abandon" }
    | { readonly kind: "cancel" };
}

export type StopAnswer =
  | { readonly kind: "stopping"; readonly record: StoppingRecord }
  /** Still being made; its maker, or the instance that takes over, ends it. */
  | { readonly kind: "noted"; readonly record: CreatingRecord }
  | { readonly kind: "held"; readonly record: ReadyRecord }
  /** Changed since, another generation, stopping already, or absent. */
  | { readonly kind: "lost"; readonly record: SandboxRecord | null }
  | { readonly kind: "unknown-session" };

export interface TakeOverRequest {
  readonly sandboxId: SandboxId;
  readonly revision: number;
  readonly actor: InstanceId;
}

export interface GrantLeaseRequest {
  readonly leaseId: LeaseId;
  readonly sandboxId: SandboxId;
  readonly generation: Generation;
  readonly purpose: string;
  readonly holder: string;
  readonly ttlMs: number;
}

/** The state of a lease that an observer has seen unchanged for so long that the lease is over. */
export type LeaseSeen = Pick<RemoteLease, "generation" | "beat">;

export interface RemoteLeaseView {
  readonly leaseId: LeaseId;
  readonly beat: number;
  readonly ttlMs: number;
  readonly record: ReadyRecord;
}
