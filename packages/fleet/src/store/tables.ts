/**
 * Tables: the rows that a transaction works on. `transactions/` defines each step of the store once, over this
 * interface; the memory store and the SQLite store only differ in where the rows are.
 *
 * Everything is synchronous, because a transaction is never held across an `await`.
 */

import type { Epoch, InstanceId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import type { ReadyRecord, SandboxRecord, Tombstone } from "./record.ts";
import type { Census, ListFilter, Session, TombstoneFilter } from "./store.ts";
import type { ThreadHome, TransferMark } from "./transfer/store-transfer.ts";

export interface MetaRow {
  readonly epoch: Epoch;
  /** Of a store that is not shared. Ask `isRecovering`. */
  readonly recovering: boolean;
}

export interface Tables {
  /** Whether hosts with different engines use the store (`Store.isShared`). */
  readonly isShared: boolean;
  /** The store's clock. */
  now(): number;

  meta(): MetaRow;
  putMeta(meta: MetaRow): void;
  /** A store with a mark begins no session. */
  transfer(): TransferMark | null;
  putTransfer(mark: TransferMark | null): void;
  /** Whether the present epoch does not know yet what this engine has. Not shared: one answer for all engines. */
  isRecovering(engine: string): boolean;
  endRecovery(engine: string): void;
  /** Until when other engines' instances wait for the recovery of this one, in the present epoch; `null`: no limit. */
  awaitedUntil(engine: string): number | null;
  awaitUntil(engine: string, at: number): void;

  /** The highest generation that was given or seen; 0: none yet. A row of its own: only steps that need one touch it. */
  generation(): number;
  putGeneration(generation: number): void;

  hasSession(instance: InstanceId): boolean;
  session(instance: InstanceId): Session | null;
  sessions(): readonly Session[];
  putSession(session: Session): void;
  deleteSession(instance: InstanceId): void;

  record(sandboxId: SandboxId): SandboxRecord | null;
  recordOf(user: UserId, thread: ThreadId): SandboxRecord | null;
  records(filter?: ListFilter): readonly SandboxRecord[];
  /** Records with `instance` as a holder. */
  recordsHeldBy(instance: InstanceId): readonly ReadyRecord[];
  /** The record with this remote lease. */
  recordWithLease(leaseId: string): ReadyRecord | null;
  /** The blanks of a blueprint on an engine, always in the same order. Not shared: on any engine. */
  blankIds(blueprintHash: string, engine: string): readonly SandboxId[];
  countAll(): number;
  /** Counts all records, or one user's. */
  census(user: UserId | null): Census;
  countOf(user: UserId): number;
  /** The records of one engine. Not shared: all records. */
  countOn(engine: string): number;
  /** Inserts or replaces. The key `(user, thread)` must be free or its own. */
  putRecord(record: SandboxRecord): void;
  deleteRecord(sandboxId: SandboxId): void;

  /** The engine on which a thread lives, also while it has no sandbox, and over epochs. Not shared: always `null`. */
  homeOf(user: UserId, thread: ThreadId): string | null;
  /** Every thread's, in no particular order. */
  homes(): readonly ThreadHome[];
  putHome(user: UserId, thread: ThreadId, engine: string): void;
  dropHome(user: UserId, thread: ThreadId): void;

  tombstone(sandboxId: SandboxId): Tombstone | null;
  /** The newest first, at most `limit`. */
  tombstones(filter: TombstoneFilter, limit: number): readonly Tombstone[];
  /** The thread's last one. */
  tombstoneOf(user: UserId, thread: ThreadId): Tombstone | null;
  /** Keeps the newest thousand: enough to explain yesterday, and bounded. */
  putTombstone(tombstone: Tombstone): void;
}
