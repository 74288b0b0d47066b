/**
 * The record: everything the fleet knows about one sandbox, in one place, with one state field.
 *
 *   absent ──▶ creating ──▶ ready ──▶ stopping ──▶ absent
 *                  └───────────────────▲
 *
 * ready with a holder = leased      ready without = parked      ready without a thread = blank
 *
 * Invariants (the store keeps them inside its transactions; the simulation checks them at every event)
 * - Every write raises `revision`, also one to `holders` or `leases`.
 * - A state has its own fields (`CreatingRecord`, `ReadyRecord`, `StoppingRecord`): a field without meaning in it is
 *   null or empty. So `actor`, the instance that creates or stops, is set exactly in `creating` and `stopping`.
 * - `(user, thread)` is unique among all records that have a thread.
 * - A holder belongs to an existing session: the transaction that ends a session also removes its holds.
 * - A record leaves `stopping` only when the engine has confirmed that nothing is left.
 */

import type {
  BlueprintHash,
  EngineRef,
  Generation,
  InstanceId,
  LeaseId,
  SandboxId,
  StopReason,
  ThreadId,
  Token,
  UserId,
} from "@sandlot/contract";
import type { Credentials, Place } from "../backend/backend.ts";
import type { RestoreTarget } from "../backend/checkpoints.ts";

export type State = "creating" | "ready" | "stopping";

/** The allowed moves. `absent` means that there is no record. */
export const MOVES: Readonly<Record<State | "absent", readonly (State | "absent")[]>> = {
  /** `ready` and `stopping` from nothing: an engine object without a record is adopted, or claimed for removal. */
  absent: ["creating", "ready", "stopping"],
  creating: ["ready", "stopping"],
  ready: ["stopping"],
  stopping: ["absent"],
};

/** A sandbox that is new to its thread: with the old workspace, or with an empty one. */
export type Arrival = "restored" | "empty";

export type SandboxRecord = ActingRecord | ReadyRecord;

/** A record that an instance, its actor, is working on. */
export type ActingRecord = CreatingRecord | StoppingRecord;

/** The fields of every state. */
interface AnyRecord {
  readonly sandboxId: SandboxId;
  readonly user: UserId | null;
  readonly thread: ThreadId | null;
  readonly revision: number;
  readonly generation: Generation;
  readonly token: Token;
  readonly backend: string;
  /** The engine that has the sandbox (`Backend.engineId`). Empty in records of versions that did not name engines. */
  readonly engine: string;
  readonly blueprint: string;
  readonly blueprintHash: BlueprintHash;
  readonly place: Place;
  readonly createdAt: number;
}

/** Only a ready sandbox can be held. */
interface Unheld {
  readonly holders: Readonly<Record<InstanceId, never>>;
  readonly leases: Readonly<Record<LeaseId, never>>;
  readonly parkedAt: null;
}

export interface CreatingRecord extends AnyRecord, Unheld {
  readonly state: "creating";
  readonly actor: InstanceId;
  /** The engine object is known only after the create. */
  readonly ref: null;
  readonly arrival: null;
  readonly boundFrom: null;
  /** The workspace is to be removed with the sandbox. */
  readonly purge: boolean;
  /** Why it is to end as soon as it is made; `null`: it is to stay. */
  readonly reason: StopReason | null;
}

export interface ReadyRecord extends AnyRecord {
  readonly state: "ready";
  readonly actor: null;
  readonly ref: EngineRef;
  readonly holders: Readonly<Record<InstanceId, Hold>>;
  /** Remote leases. They count as holders until they end. */
  readonly leases: Readonly<Record<LeaseId, RemoteLease>>;
  /** The state of the thread, for the first lease's `recovery`; `null` after the first use. */
  readonly arrival: Arrival | null;
  /** After a bind: the daemon's former credentials, until it has received its new generation and token. */
  readonly boundFrom: Credentials | null;
  /**
   * When a holder left last; for a dead holder, its last sign of life. `null` while none has left. Only without holders is the
   * sandbox parked since then. While others stay it is kept for the case that the last of them turns out to be long dead.
   */
  readonly parkedAt: number | null;
  readonly purge: false;
  readonly reason: null;
}

export interface StoppingRecord extends AnyRecord, Unheld {
  readonly state: "stopping";
  readonly actor: InstanceId;
  /** `null`: the create was never confirmed, so only the engine knows what it made. */
  readonly ref: EngineRef | null;
  /** The values at the time of the stop. */
  readonly arrival: Arrival | null;
  readonly boundFrom: Credentials | null;
  /** The workspace goes with the sandbox. */
  readonly purge: boolean;
  /** The content of the home in the workspace goes, too. Absent: it stays. */
  readonly emptyHome?: true;
  /** What the workspace is changed to before the record may leave. A purge goes before it. Absent: it stays as it is. */
  readonly restore?: RestoreTarget;
  readonly reason: StopReason;
}

/** An instance's hold. It carries its generation, so that a late release of an old one cannot touch a new one. */
export interface Hold {
  readonly generation: Generation;
  /** The instance's own counter at the request. An older heal or release leaves the hold alone. */
  readonly seq: number;
  readonly since: number;
}

export interface RemoteLease {
  readonly generation: Generation;
  readonly purpose: string;
  /** The caller that got the lease, for people to read. */
  readonly holder: string;
  readonly acquiredAt: number;
  readonly ttlMs: number;
  /** Raised by each renewal. A lease is over when an observer saw the same beat for `ttlMs` on its own clock. */
  readonly beat: number;
}

/** The remaining facts of an ended sandbox, so that `explain` can still say why it ended. */
export interface Tombstone {
  readonly sandboxId: SandboxId;
  readonly user: UserId | null;
  readonly thread: ThreadId | null;
  readonly generation: Generation;
  readonly reason: StopReason;
  readonly by: InstanceId;
  readonly createdAt: number;
  readonly stoppedAt: number;
}

/** A sandbox for a call without a thread: the fleet makes its key, and it ends with its last lease. */
const ANONYMOUS_PREFIX = "~";

export function anonymousThread(randomHex: string): ThreadId {
  return `${ANONYMOUS_PREFIX}${randomHex}` as ThreadId;
}

export function isAnonymous(thread: ThreadId | null): boolean {
  return thread?.startsWith(ANONYMOUS_PREFIX) === true;
}

export function isHeld(record: Pick<SandboxRecord, "holders" | "leases">): boolean {
  for (const _ in record.holders) return true;
  for (const _ in record.leases) return true;
  return false;
}

export function isBlank(record: SandboxRecord): boolean {
  return record.state === "ready" && record.thread === null;
}

export function isParked(record: SandboxRecord): boolean {
  return record.state === "ready" && record.thread !== null && !isHeld(record);
}

/** Generations begin at Unix milliseconds: a higher one was never given out. It leaves as many to count as it has behind it. */
const GENERATION_MAX = 2 ** 52;

/** Whether the counter can go on from a generation. One that a damaged file or label names would end all counting. */
export function isCountable(generation: number): boolean {
  return generation <= GENERATION_MAX;
}
