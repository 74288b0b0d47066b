/**
 * The rows of the one store, under observation: every row change is reported before it happens, with the old and the
 * new row. Rows are frozen, so that only the store can change one.
 *
 * The rows themselves are in maps, as those of the memory store, or in a SQLite database in memory.
 */

import type { Epoch, InstanceId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import { MemoryTables } from "../../../packages/fleet/src/store/memory/memory-tables.ts";
import type { ReadyRecord, SandboxRecord, Tombstone } from "../../../packages/fleet/src/store/record.ts";
import { migrate } from "../../../packages/fleet/src/store/sqlite/schema.ts";
import { SqliteTables } from "../../../packages/fleet/src/store/sqlite/sqlite-tables.ts";
import type { Census, ListFilter, Session, TombstoneFilter } from "../../../packages/fleet/src/store/store.ts";
import { type ClockRow, clockOfBoot, readClock } from "../../../packages/fleet/src/store/store-clock.ts";
import type { MetaRow, Tables } from "../../../packages/fleet/src/store/tables.ts";
import type { ThreadHome, TransferMark } from "../../../packages/fleet/src/store/transfer/store-transfer.ts";
import { openDatabase } from "../../../packages/fleet/src/world/sqlite-driver.ts";
import type { Host } from "../process/host.ts";

export interface TablesAudit {
  recordPut(before: SandboxRecord | null, after: SandboxRecord): void;
  recordDeleted(before: SandboxRecord): void;
  sessionPut(before: Session | null, after: Session): void;
  sessionDeleted(before: Session): void;
  recoveryEnded(engine: string): void;
  emptied(): void;
}

/** Only a shared one serves several engines. */
export type StoreKind = "memory" | "sqlite" | "shared";

export class WatchedTables implements Tables {
  /** The store's machine, whose clock the store uses. */
  readonly host: Host;
  readonly #newEpoch: () => string;
  readonly #kind: StoreKind;
  readonly #watchers = new Set<() => void>();
  #audit: TablesAudit | null = null;
  #clock: ClockRow;
  #rows: Tables;
  /** The store behind these rows is emptied too. */
  onEmpty: (() => void) | null = null;

  constructor(host: Host, newEpoch: () => string, kind: StoreKind = "memory") {
    this.host = host;
    this.#newEpoch = newEpoch;
    this.#kind = kind;
    this.#clock = clockOfBoot(host, null, 0);
    this.#rows = this.#begin();
  }

  #begin(): Tables {
    const now = () => this.now();
    if (this.#kind !== "sqlite") return new MemoryTables(now, () => this.#newEpoch() as Epoch, this.isShared);
    const db = openDatabase(":memory:");
    migrate(db);
    const meta = db.prepare("INSERT INTO meta (one, epoch, recovering, generation) VALUES (1, ?, 1, ?)");
    meta.run(this.#newEpoch(), now());
    return new SqliteTables(db, now);
  }

  watchedBy(audit: TablesAudit): void {
    this.#audit = audit;
  }

  /** A new, empty store takes its place; it does not even know the former store's time. */
  empty(): void {
    this.onEmpty?.();
    this.#clock = clockOfBoot(this.host, null, 0);
    // A shared store keeps the homes of threads.
    if (this.#rows instanceof MemoryTables) this.#rows.empty();
    else this.#rows = this.#begin();
    this.#audit?.emptied();
  }

  /** A new epoch of the same store begins: it has the same clock, and no records. */
  beginEpoch(): void {
    if (this.#rows instanceof MemoryTables) this.#rows.empty();
    this.#audit?.emptied();
  }

  /** The rows are others, as after a failover to a replica that lacks the last ones. No check hears of it. */
  replace(fill: (rows: Tables) => void): void {
    this.#rows = this.#begin();
    fill(this.#rows);
  }

  watch(hint: () => void): () => void {
    this.#watchers.add(hint);
    return () => this.#watchers.delete(hint);
  }

  get isShared(): boolean {
    return this.#kind === "shared";
  }

  hint(): void {
    for (const watcher of this.#watchers) watcher();
  }

  now(): number {
    return readClock(this.host, this.#clock);
  }

  /** A server reads its wall clock, which an operator or a time service may set. */
  stepClock(byMs: number): void {
    this.#clock = { ...this.#clock, baseMs: this.#clock.baseMs + byMs };
  }

  meta(): MetaRow {
    return this.#rows.meta();
  }

  putMeta(meta: MetaRow): void {
    this.#rows.putMeta(meta);
  }

  generation(): number {
    return this.#rows.generation();
  }

  putGeneration(generation: number): void {
    this.#rows.putGeneration(generation);
  }

  transfer(): TransferMark | null {
    return this.#rows.transfer();
  }

  putTransfer(mark: TransferMark | null): void {
    this.#rows.putTransfer(mark);
  }

  isRecovering(engine: string): boolean {
    return this.#rows.isRecovering(engine);
  }

  endRecovery(engine: string): void {
    this.#audit?.recoveryEnded(engine);
    this.#rows.endRecovery(engine);
  }

  awaitedUntil(engine: string): number | null {
    return this.#rows.awaitedUntil(engine);
  }

  awaitUntil(engine: string, at: number): void {
    this.#rows.awaitUntil(engine, at);
  }

  hasSession(instance: InstanceId): boolean {
    return this.#rows.hasSession(instance);
  }

  session(instance: InstanceId): Session | null {
    return this.#rows.session(instance);
  }

  sessions(): readonly Session[] {
    return this.#rows.sessions();
  }

  putSession(session: Session): void {
    this.#audit?.sessionPut(this.session(session.instance), session);
    this.#rows.putSession(Object.freeze(session));
  }

  deleteSession(instance: InstanceId): void {
    const before = this.session(instance);
    if (before !== null) this.#audit?.sessionDeleted(before);
    this.#rows.deleteSession(instance);
  }

  record(sandboxId: SandboxId): SandboxRecord | null {
    return this.#rows.record(sandboxId);
  }

  recordOf(user: UserId, thread: ThreadId): SandboxRecord | null {
    return this.#rows.recordOf(user, thread);
  }

  records(filter?: ListFilter): readonly SandboxRecord[] {
    return this.#rows.records(filter);
  }

  recordsHeldBy(instance: InstanceId): readonly ReadyRecord[] {
    return this.#rows.recordsHeldBy(instance);
  }

  recordWithLease(leaseId: string): ReadyRecord | null {
    return this.#rows.recordWithLease(leaseId);
  }

  blankIds(blueprintHash: string, engine: string): readonly SandboxId[] {
    return this.#rows.blankIds(blueprintHash, engine);
  }

  countAll(): number {
    return this.#rows.countAll();
  }

  census(user: UserId | null): Census {
    return this.#rows.census(user);
  }

  countOf(user: UserId): number {
    return this.#rows.countOf(user);
  }

  countOn(engine: string): number {
    return this.#rows.countOn(engine);
  }

  homeOf(user: UserId, thread: ThreadId): string | null {
    return this.#rows.homeOf(user, thread);
  }

  homes(): readonly ThreadHome[] {
    return this.#rows.homes();
  }

  putHome(user: UserId, thread: ThreadId, engine: string): void {
    this.#rows.putHome(user, thread, engine);
  }

  dropHome(user: UserId, thread: ThreadId): void {
    this.#rows.dropHome(user, thread);
  }

  putRecord(record: SandboxRecord): void {
    this.#audit?.recordPut(this.record(record.sandboxId), record);
    Object.freeze(record.holders);
    Object.freeze(record.leases);
    this.#rows.putRecord(Object.freeze(record));
  }

  deleteRecord(sandboxId: SandboxId): void {
    const before = this.record(sandboxId);
    if (before !== null) this.#audit?.recordDeleted(before);
    this.#rows.deleteRecord(sandboxId);
  }

  tombstone(sandboxId: SandboxId): Tombstone | null {
    return this.#rows.tombstone(sandboxId);
  }

  tombstones(filter: TombstoneFilter, limit: number): readonly Tombstone[] {
    return this.#rows.tombstones(filter, limit);
  }

  tombstoneOf(user: UserId, thread: ThreadId): Tombstone | null {
    return this.#rows.tombstoneOf(user, thread);
  }

  putTombstone(tombstone: Tombstone): void {
    this.#rows.putTombstone(tombstone);
  }
}
