/**
 * The rows of a SQLite file, inside one transaction at a time.
 *
 * Hot steps touch few pages: `RowCache` serves their reads while it is valid, and writing a record back knows what
 * changed. A hold then is one UPDATE of one row on one page; the indexes stay untouched. Only a beat asks which records
 * an instance holds, so it searches the held records instead of a separate table. Steps that look at many records read
 * and parse them all: they are rare, and would only crowd the cache.
 */

import type { DatabaseSync } from "node:sqlite";
import type { InstanceId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import { isHeld, type ReadyRecord, type SandboxRecord, type Tombstone } from "../record.ts";
import type { Census, ListFilter, Session, TombstoneFilter } from "../store.ts";
import type { MetaRow, Tables } from "../tables.ts";
import type { TransferMark } from "../transfer/store-transfer.ts";
import { bodyText, fixedText, isFixedSame } from "./body.ts";
import { type RecordRow, RowCache } from "./row-cache.ts";
import {
  type StoredMeta,
  sessionText,
  toCensus,
  toCount,
  toMeta,
  toRecord,
  toRowid,
  toSandboxId,
  toSession,
  toTombstone,
  toTransfer,
} from "./rows.ts";
import { READERS } from "./schema.ts";

/** Enough to explain yesterday, and bounded. */
const TOMBSTONES_MAX = 1_000;

export class SqliteTables implements Tables {
  readonly isShared = false;
  readonly now: () => number;
  readonly #sql: ReturnType<typeof prepareAll>;
  readonly #cache = new RowCache();
  /** Grows with every change, so that a step without changes wakes no waiter. */
  changeCount = 0;

  constructor(db: DatabaseSync, now: () => number) {
    this.now = now;
    this.#sql = prepareAll(db);
  }

  /** Call it before each step, with the file's `data_version` as the step sees it. */
  validate(version: unknown): void {
    this.#cache.validate(version);
  }

  /** Call it when a write is not, or not surely, in the file. */
  forget(): void {
    this.#cache.clear();
  }

  meta(): MetaRow {
    return this.#storedMeta();
  }

  putMeta({ epoch, recovering }: MetaRow): void {
    this.#putStoredMeta({ ...this.#storedMeta(), epoch, recovering });
  }

  generation(): number {
    return this.#storedMeta().generation;
  }

  putGeneration(generation: number): void {
    this.#putStoredMeta({ ...this.#storedMeta(), generation });
  }

  #storedMeta(): StoredMeta {
    this.#cache.meta ??= toMeta(this.#sql.meta.get());
    return this.#cache.meta;
  }

  #putStoredMeta(meta: StoredMeta): void {
    this.changeCount += 1;
    this.#sql.putMeta.run(meta.epoch, meta.recovering ? 1 : 0, meta.generation);
    this.#cache.meta = meta;
  }

  transfer(): TransferMark | null {
    return toTransfer(this.#sql.transfer.get());
  }

  putTransfer(mark: TransferMark | null): void {
    this.changeCount += 1;
    const reader = mark === null ? READERS.unmarked : READERS.marked;
    this.#sql.putTransfer.run(mark === null ? null : JSON.stringify(mark), reader);
  }

  isRecovering(): boolean {
    return this.meta().recovering;
  }

  endRecovery(): void {
    this.putMeta({ ...this.meta(), recovering: false });
  }

  awaitedUntil(): number | null {
    return null;
  }

  awaitUntil(): void {}

  hasSession(instance: InstanceId): boolean {
    if (this.#cache.hasSession(instance)) return true;
    if (this.#sql.hasSession.get(instance) === undefined) return false;
    this.#cache.addSession(instance);
    return true;
  }

  session(instance: InstanceId): Session | null {
    const row = this.#sql.session.get(instance);
    return row === undefined ? null : toSession(row);
  }

  sessions(): readonly Session[] {
    return this.#sql.sessions.all().map(toSession);
  }

  putSession(session: Session): void {
    this.changeCount += 1;
    const { instance, beat, lastBeatAt } = session;
    this.#sql.putSession.run(instance, beat, lastBeatAt, sessionText(session));
  }

  deleteSession(instance: InstanceId): void {
    this.changeCount += 1;
    this.#sql.deleteSession.run(instance);
    this.#cache.deleteSession(instance);
  }

  record(sandboxId: SandboxId): SandboxRecord | null {
    return this.#row(sandboxId)?.record ?? null;
  }

  recordOf(user: UserId, thread: ThreadId): SandboxRecord | null {
    const row = this.#cache.recordOf(user, thread) ?? this.#remember(this.#sql.recordOf.get(user, thread));
    return row?.record ?? null;
  }

  recordWithLease(leaseId: string): ReadyRecord | null {
    const record = this.#remember(this.#sql.recordWithLease.get(leaseId))?.record;
    return record?.state === "ready" ? record : null;
  }

  records(filter?: ListFilter): readonly SandboxRecord[] {
    return this.#rowsOf(filter).map(toRecord);
  }

  #rowsOf(filter: ListFilter | undefined) {
    if (filter === undefined) return this.#sql.records.all();
    if ("blankOf" in filter) return this.#sql.recordsBlank.all(filter.blankOf);
    if ("parked" in filter) return this.#sql.recordsParked.all();
    if ("unheld" in filter) return this.#sql.recordsUnheld.all();
    return "leased" in filter ? this.#sql.recordsLeased.all() : this.#sql.recordsActing.all();
  }

  recordsHeldBy(instance: InstanceId): readonly ReadyRecord[] {
    const records = this.#sql.recordsHeldBy.all(instance).map(toRecord);
    return records.filter((record) => record.state === "ready");
  }

  blankIds(blueprintHash: string): readonly SandboxId[] {
    return this.#sql.blankIds.all(blueprintHash).map(toSandboxId);
  }

  countAll(): number {
    return toCount(this.#sql.countAll.get());
  }

  census(user: UserId | null): Census {
    return toCensus(this.#sql.census.all(user, user));
  }

  countOf(user: UserId): number {
    return toCount(this.#sql.countOf.get(user));
  }

  countOn(): number {
    return this.countAll();
  }

  homeOf(): null {
    return null;
  }

  homes(): readonly never[] {
    return [];
  }

  putHome(): void {}

  dropHome(): void {}

  putRecord(record: SandboxRecord): void {
    this.changeCount += 1;
    const { sandboxId, user, thread, state, blueprintHash } = record;
    const held = isHeld(record) ? 1 : 0;
    const old = this.#row(sandboxId);
    const isSame = old !== null && isFixedSame(old.record, record);
    const fixed = (isSame ? old.fixed : null) ?? fixedText(record);
    const body = bodyText(fixed, record);
    let rowid = old?.rowid;
    if (rowid === undefined) {
      const { lastInsertRowid } = this.#sql.insertRecord.run(sandboxId, user, thread, state, blueprintHash, held, body);
      rowid = lastInsertRowid;
    } else if (isSame) {
      this.#sql.updateBody.run(held, body, rowid);
    } else {
      this.#sql.updateRecord.run(user, thread, state, blueprintHash, held, body, rowid);
    }
    this.#putLeases(record, old?.record.leases ?? {});
    this.#cache.putRecord({ rowid, record, fixed });
  }

  #putLeases({ sandboxId, leases }: Pick<SandboxRecord, "sandboxId" | "leases">, old: SandboxRecord["leases"]): void {
    for (const leaseId in old) if (!(leaseId in leases)) this.#sql.deleteLease.run(leaseId, sandboxId);
    for (const leaseId in leases) if (!(leaseId in old)) this.#sql.insertLease.run(leaseId, sandboxId);
  }

  deleteRecord(sandboxId: SandboxId): void {
    const old = this.record(sandboxId);
    if (old === null) return;
    this.changeCount += 1;
    this.#putLeases({ sandboxId, leases: {} }, old.leases);
    this.#sql.deleteRecord.run(sandboxId);
    this.#cache.deleteRecord(sandboxId);
  }

  tombstone(sandboxId: SandboxId): Tombstone | null {
    const row = this.#sql.tombstone.get(sandboxId);
    return row === undefined ? null : toTombstone(row);
  }

  tombstones(filter: TombstoneFilter, limit: number): readonly Tombstone[] {
    const rows =
      "idPrefix" in filter
        ? this.#sql.tombstonesLike.all(filter.idPrefix, filter.idPrefix, limit)
        : this.#sql.tombstonesOf.all(filter.user, filter.thread, limit);
    return rows.map(toTombstone);
  }

  tombstoneOf(user: UserId, thread: ThreadId): Tombstone | null {
    const row = this.#sql.tombstoneOf.get(user, thread);
    return row === undefined ? null : toTombstone(row);
  }

  putTombstone(tombstone: Tombstone): void {
    this.#sql.putTombstone.run(tombstone.sandboxId, JSON.stringify(tombstone));
    this.#sql.trimTombstones.run(TOMBSTONES_MAX);
  }

  #row(sandboxId: SandboxId): RecordRow | null {
    return this.#cache.record(sandboxId) ?? this.#remember(this.#sql.record.get(sandboxId));
  }

  #remember(found: Parameters<typeof toRecord>[0] | undefined): RecordRow | null {
    if (found === undefined) return null;
    const row = { rowid: toRowid(found), record: toRecord(found), fixed: null };
    this.#cache.putRecord(row);
    return row;
  }
}

function prepareAll(db: DatabaseSync) {
  const prepare = (sql: string) => db.prepare(sql);
  return {
    meta: prepare("SELECT epoch, recovering, generation FROM meta"),
    putMeta: prepare("UPDATE meta SET epoch = ?, recovering = ?, generation = ?"),
    transfer: prepare("SELECT transfer FROM meta"),
    putTransfer: prepare("UPDATE meta SET transfer = ?, min_reader = ?"),
    session: prepare("SELECT instance, beat, last_beat_at, identity FROM sessions WHERE instance = ?"),
    hasSession: prepare("SELECT 1 FROM sessions WHERE instance = ?"),
    sessions: prepare("SELECT instance, beat, last_beat_at, identity FROM sessions"),
    putSession: prepare("INSERT OR REPLACE INTO sessions (instance, beat, last_beat_at, identity) VALUES (?, ?, ?, ?)"),
    deleteSession: prepare("DELETE FROM sessions WHERE instance = ?"),
    record: prepare("SELECT rowid, sandbox_id, body FROM records WHERE sandbox_id = ?"),
    recordOf: prepare("SELECT rowid, sandbox_id, body FROM records WHERE user = ? AND thread = ?"),
    recordWithLease: prepare(
      "SELECT records.rowid, sandbox_id, body FROM leases JOIN records USING (sandbox_id) WHERE lease_id = ?",
    ),
    records: prepare("SELECT sandbox_id, body FROM records"),
    recordsBlank: prepare(
      "SELECT sandbox_id, body FROM records WHERE state = 'ready' AND thread IS NULL AND blueprint_hash = ?",
    ),
    blankIds: prepare(
      "SELECT sandbox_id FROM records WHERE state = 'ready' AND thread IS NULL AND blueprint_hash = ? ORDER BY rowid",
    ),
    recordsParked: prepare(
      "SELECT sandbox_id, body FROM records WHERE state = 'ready' AND thread IS NOT NULL AND held = 0",
    ),
    recordsUnheld: prepare("SELECT sandbox_id, body FROM records WHERE state = 'ready' AND held = 0"),
    recordsLeased: prepare("SELECT sandbox_id, body FROM records WHERE sandbox_id IN (SELECT sandbox_id FROM leases)"),
    census: prepare(
      "SELECT state, thread IS NULL AS threadless, held, count(*) AS count FROM records " +
        "WHERE ? IS NULL OR user = ? GROUP BY state, threadless, held",
    ),
    recordsActing: prepare("SELECT sandbox_id, body FROM records WHERE state <> 'ready'"),
    recordsHeldBy: prepare(
      "SELECT sandbox_id, body FROM records " +
        "WHERE held = 1 AND EXISTS (SELECT 1 FROM json_each(body, '$.holders') WHERE key = ?)",
    ),
    countAll: prepare("SELECT count(*) AS count FROM records"),
    countOf: prepare("SELECT count(*) AS count FROM records WHERE user = ? AND thread IS NOT NULL"),
    insertRecord: prepare(
      "INSERT INTO records (sandbox_id, user, thread, state, blueprint_hash, held, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
    ),
    updateRecord: prepare(
      "UPDATE records SET user = ?, thread = ?, state = ?, blueprint_hash = ?, held = ?, body = ? WHERE rowid = ?",
    ),
    updateBody: prepare("UPDATE records SET held = ?, body = ? WHERE rowid = ?"),
    deleteRecord: prepare("DELETE FROM records WHERE sandbox_id = ?"),
    insertLease: prepare("INSERT OR REPLACE INTO leases (lease_id, sandbox_id) VALUES (?, ?)"),
    deleteLease: prepare("DELETE FROM leases WHERE lease_id = ? AND sandbox_id = ?"),
    tombstone: prepare("SELECT sandbox_id, body FROM obituaries WHERE sandbox_id = ?"),
    // A thousand rows at most, and read only when a blank is bound or a sandbox adopted: not worth an index.
    tombstoneOf: prepare(
      "SELECT sandbox_id, body FROM obituaries WHERE body ->> 'user' = ? AND body ->> 'thread' = ? ORDER BY ordinal DESC LIMIT 1",
    ),
    tombstonesLike: prepare(
      "SELECT sandbox_id, body FROM obituaries WHERE substr(sandbox_id, 1, length(?)) = ? ORDER BY ordinal DESC LIMIT ?",
    ),
    tombstonesOf: prepare(
      "SELECT sandbox_id, body FROM obituaries WHERE body ->> 'user' = ? AND body ->> 'thread' = ? ORDER BY ordinal DESC LIMIT ?",
    ),
    putTombstone: prepare("INSERT OR REPLACE INTO obituaries (sandbox_id, body) VALUES (?, ?)"),
    trimTombstones: prepare(
      "DELETE FROM obituaries WHERE ordinal <= (SELECT ordinal FROM obituaries ORDER BY ordinal DESC LIMIT 1 OFFSET ?)",
    ),
  };
}
