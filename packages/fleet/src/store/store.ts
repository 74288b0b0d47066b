/**
 * The store contract: the one authority on which sandboxes exist, who holds them and who is alive.
 *
 * Each method is one atomic step: one SQLite transaction, one Lua script, one SQL transaction. There is no way to read
 * here and write there, so nothing can be decided from what was true a moment ago. Where a caller acts on something it
 * read before, it passes the `revision` it read, and losing is an ordinary answer, not an exception.
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
 *   that says it lost): who was buried takes, makes and stops nothing until it has registered again.
 * - A hold that ends in another way than by its own `unhold` (its session ended, a beat healed it) counts as used.
 * - Lists and `lost` are in no particular order.
 * - Nothing survives half: a crash at any moment leaves the state before or after a method, never between.
 * - A store that cannot answer rejects with `store_unavailable`; the step may have happened nevertheless.
 * - `watch` is a hint. It may fire too often, too early, or not at all; whoever listens reads again.
 */

import type {
  BlueprintHash,
  CapacityCounts,
  EngineRef,
  Epoch,
  Generation,
  InstanceId,
  LeaseId,
  LossReason,
  SandboxId,
  StopReason,
  ThreadId,
  Token,
  UserId,
} from "@sandlot/contract";
import type { Place } from "../backend/backend.ts";
import type { ProcessIdentity } from "../world/world.ts";
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

export interface Store {
  readonly kind: string;

  // Sessions: who is alive.
  /** Renews (or with `register` begins) a session, heals lost releases, and tells which holds were lost. */
  beat(request: BeatRequest): Promise<BeatAnswer>;
  sessions(): Promise<readonly Session[]>;
  /** Ends a peer's session if its beat is still the one that was judged dead. Removes its holds in the same step. */
  endDeadSession(peer: InstanceId, beat: number): Promise<boolean>;
  /** Ends one's own session, and its holds. */
  leave(instance: InstanceId): Promise<void>;

  // Reading.
  meta(): Promise<StoreMeta>;
  get(sandboxId: SandboxId): Promise<SandboxRecord | null>;
  find(user: UserId, thread: ThreadId): Promise<SandboxRecord | null>;
  list(filter?: ListFilter): Promise<readonly SandboxRecord[]>;
  /** How many there are of each kind, without reading them one by one. */
  census(): Promise<Census>;
  tombstone(sandboxId: SandboxId): Promise<Tombstone | null>;
  /** Ended sandboxes that match, the newest first; at most `ENDED_MAX`. */
  tombstones(filter: TombstoneFilter): Promise<readonly Tombstone[]>;

  // absent → creating → ready
  /** Claims the thread's key, counts against the limits and writes the intent, all before the engine is asked. */
  reserve(request: ReserveRequest): Promise<ReserveAnswer>;
  /** creating → ready, by the actor that still is one. `null`: it no longer is. */
  publish(request: PublishRequest): Promise<ReadyRecord | null>;

  // ready: holding
  /**
   * What an acquire asks first, in one step. It becomes a holder of the thread's sandbox where that is ready. Where the
   * thread has none it picks a blank, with a generation for binding it; where there is none, it reserves.
   */
  take(request: TakeRequest): Promise<TakeAnswer>;
  hold(request: HoldRequest): Promise<HoldAnswer>;
  /** Ends exactly this hold. The record as it is now, or `null` when there is none. Never fails for being late. */
  unhold(request: UnholdRequest): Promise<SandboxRecord | null>;

  // ready: binding a blank to a thread
  bind(request: BindRequest): Promise<BindAnswer>;
  /** The workspace is in place and the daemon knows its new generation. */
  confirmBound(sandboxId: SandboxId, generation: Generation, arrival: Arrival): Promise<void>;

  // → stopping → absent
  stop(request: StopRequest): Promise<StopAnswer>;
  /** Becomes the actor of a record whose actor's session is gone; a record in `creating` moves to `stopping`. */
  takeOver(request: TakeOverRequest): Promise<StoppingRecord | null>;
  /** stopping → absent: the engine has confirmed that nothing is left. False: it is no longer ours to remove. */
  remove(request: { sandboxId: SandboxId; revision: number; actor: InstanceId }): Promise<boolean>;

  // Leases of remote callers.
  grantLease(request: GrantLeaseRequest): Promise<boolean>;
  renewLease(leaseId: LeaseId): Promise<RemoteLeaseView | null>;
  findLease(leaseId: LeaseId): Promise<RemoteLeaseView | null>;
  /** The record the lease was on, or `null` when there was no such lease. */
  releaseLease(leaseId: LeaseId): Promise<ReadyRecord | null>;
  /** Ends a lease if it is still as it was when it was judged over. */
  expireLease(leaseId: LeaseId, seen: LeaseSeen): Promise<boolean>;

  // After the store was lost.
  /**
   * Puts back a sandbox that the caller holds: as it was if nobody knows it, as one more hold if somebody does. Rows of
   * remote leases come back with a beat nobody has seen, because renewals may have been lost with the store.
   */
  restore(request: RestoreRequest): Promise<HoldAnswer>;
  /** Takes in, as parked, a sandbox that the engine shows and whose marker proves its thread. Counts against limits. */
  adopt(request: AdoptRequest): Promise<boolean>;
  /**
   * Writes a `stopping` record for something no record knows, so that only one ends it and nobody adopts it meanwhile.
   * With `purge` it waits (`null`) until recovery is over: until then the thread may yet turn out to have a sandbox.
   */
  claimForRemoval(request: ClaimForRemovalRequest): Promise<StoppingRecord | null>;
  /** Ends recovery if the store's epoch is still this one. */
  endRecovery(epoch: Epoch): Promise<void>;

  /** Calls `hint` when something may have changed. Returns how to stop. */
  watch(hint: () => void): () => void;
  close(): Promise<void>;
}

export interface StoreMeta {
  readonly epoch: Epoch;
  /** The store begins anew; until it ends, only holders that re-register are served. */
  readonly recovering: boolean;
}

export interface Session {
  readonly instance: InstanceId;
  readonly beat: number;
  readonly lastBeatAt: number;
  readonly identity: ProcessIdentity;
}

export interface BeatRequest {
  readonly instance: InstanceId;
  readonly identity: ProcessIdentity;
  /** One more than the last; an older one is ignored, so that a late beat cannot undo a newer one. */
  readonly beat: number;
  /** The epoch this instance knows; `null` on its very first beat. */
  readonly epoch: Epoch | null;
  /** Begin a session that does not exist. Without it a missing session is `unknown-session`. */
  readonly register: boolean;
  /** Everything this instance holds or is about to hold, as of its counter `asOf`. */
  readonly held: readonly { readonly sandboxId: SandboxId; readonly generation: Generation }[];
  readonly asOf: number;
  /** The highest generation this instance has seen; the store's counter never falls behind it. */
  readonly generationFloor: number;
}

export type BeatAnswer =
  | {
      readonly kind: "ok";
      readonly epoch: Epoch;
      readonly recovering: boolean;
      /** The store's clock, by which idleness and age are judged. */
      readonly now: number;
      /** Of `held`, what is no longer this instance's, and why. */
      readonly lost: readonly {
        readonly sandboxId: SandboxId;
        readonly generation: Generation;
        readonly reason: LossReason;
      }[];
    }
  | { readonly kind: "unknown-session" }
  | { readonly kind: "new-epoch"; readonly epoch: Epoch };

export type ListFilter =
  | { readonly blankOf: string }
  | { readonly parked: true }
  /** Ready, and nobody holds them: the blanks and the parked. */
  | { readonly unheld: true }
  /** With at least one lease of a remote caller. */
  | { readonly leased: true }
  /** Records in `creating` or `stopping`: what an actor is, or was, working on. */
  | { readonly acting: true };

/** By the beginning of an id, or the sandboxes of one thread. */
export type TombstoneFilter = { readonly idPrefix: string } | { readonly user: UserId; readonly thread: ThreadId };

/** Enough to say that the beginning of an id is ambiguous. */
export const ENDED_MAX = 10;

export type Census = Omit<CapacityCounts, "queued">;

/** `null` means no limit. */
export interface Limits {
  readonly max: number | null;
  readonly maxPerUser: number | null;
}

export interface NewRecord {
  readonly sandboxId: SandboxId;
  readonly token: Token;
  readonly backend: string;
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
      readonly scope: "fleet" | "user";
      readonly max: number;
      readonly counts: Census;
    }
  | { readonly kind: "recovering"; readonly epoch: Epoch }
  | { readonly kind: "unknown-session" };

export type ReserveAnswer =
  | { readonly kind: "reserved"; readonly record: CreatingRecord }
  | { readonly kind: "exists"; readonly record: SandboxRecord }
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
  /** Somebody had a lease under this hold: from now on it is the same sandbox for whoever comes next. */
  readonly used: boolean;
}

export type HoldAnswer =
  | { readonly kind: "held"; readonly record: ReadyRecord }
  /** Not `ready` in this generation any more; the record as it is now. */
  | { readonly kind: "gone"; readonly record: SandboxRecord | null }
  | Exclude<Refusal, { kind: "full" }>;

export interface TakeRequest {
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly instance: InstanceId;
  readonly seq: number;
  /** The blanks that a thread without a sandbox may be given; `null`: none. `except` are as good as taken. */
  readonly blank: { readonly blueprintHash: BlueprintHash; readonly except: readonly SandboxId[] } | null;
  /** What a thread is to get that has no sandbox, and for which there is no blank; `null`: nothing. */
  readonly orReserve: (NewRecord & { readonly limits: Limits }) | null;
}

export type TakeAnswer =
  | { readonly kind: "held"; readonly record: ReadyRecord }
  /** A blank to bind under this generation. Nothing is claimed yet: `bind` may find that it was taken meanwhile. */
  | { readonly kind: "blank"; readonly record: ReadyRecord; readonly generation: Generation }
  | { readonly kind: "reserved"; readonly record: CreatingRecord }
  /** The thread's sandbox is not ready; or it has none (`null`), and nothing was asked for that there is. */
  | { readonly kind: "other"; readonly record: ActingRecord | null }
  /** `full` only where it was to reserve. */
  | Refusal;

export interface BindRequest {
  readonly sandboxId: SandboxId;
  /** The revision of the blank that was picked. */
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
  /** Somebody else took the blank, or the thread has had a later generation than the one asked for. */
  | { readonly kind: "taken" }
  /** The thread has a sandbox by now. */
  | { readonly kind: "exists"; readonly record: SandboxRecord }
  | Refusal;

export interface StopRequest {
  readonly sandboxId: SandboxId;
  readonly generation: Generation;
  readonly actor: InstanceId;
  readonly reason: StopReason;
  readonly purge: boolean;
  /**
   * - `unheld`: only while nobody holds it, and only if `revision` is still this one. For everything that is planned.
   *   While the store recovers nobody can tell who holds what, so it is `lost`.
   * - `dead`: the engine says this generation is dead, so its holds mean nothing any more.
   * - `force`: somebody insisted.
   * - `abandon`: the actor of a `creating` record gives up.
   * - `cancel`: a record in `creating` takes note that it is to end as soon as it is made. Its revision rises, so that
   *   its maker cannot publish it and unmakes it; whoever takes over from the maker finds the note too.
   */
  readonly mode:
    | { readonly kind: "unheld"; readonly revision: number }
    | { readonly kind: "dead" }
    | { readonly kind: "force" }
    | { readonly kind: "abandon" }
    | { readonly kind: "cancel" };
}

export type StopAnswer =
  | { readonly kind: "stopping"; readonly record: StoppingRecord }
  /** Still being made; it ends when its maker, or whoever takes over from it, gets there. */
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

/** What an observer has seen unchanged for so long that the lease is over. */
export type LeaseSeen = Pick<RemoteLease, "generation" | "beat">;

export interface RemoteLeaseView {
  readonly leaseId: LeaseId;
  readonly beat: number;
  readonly ttlMs: number;
  readonly record: ReadyRecord;
}

export interface RestoreRequest {
  /** As this instance remembers it. */
  readonly record: ReadyRecord;
  readonly instance: InstanceId;
  readonly seq: number;
}

export interface AdoptRequest extends NewRecord {
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly generation: Generation;
  readonly ref: EngineRef;
  readonly place: Place;
  readonly limits: Limits;
  /** The epoch in which this was judged; in another one it must be judged anew. */
  readonly epoch: Epoch;
}

export interface ClaimForRemovalRequest extends NewRecord {
  /** `null`: a new one. */
  readonly generation: Generation | null;
  readonly ref: EngineRef | null;
  readonly place: Place;
  /** The thread its marker names. Claimed if it is free, so that nobody acquires it before its workspace is home. */
  readonly key: { readonly user: UserId; readonly thread: ThreadId } | null;
  readonly actor: InstanceId;
  /** The epoch in which this was judged, where it was; in another one it must be judged anew. */
  readonly epoch?: Epoch;
  /** Only if this thread has a record of a later generation. */
  readonly superseded?: { readonly user: UserId; readonly thread: ThreadId };
  /** The thread is deleted although it has no sandbox: its key must be free, and its workspace goes. */
  readonly purge?: boolean;
}
