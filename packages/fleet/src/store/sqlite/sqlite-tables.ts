/**
 * The rows of a SQLite file, inside one transaction at a time.
 *
 * Hot steps touch few pages: a record that was read in this transaction is remembered, so that writing it back knows
 * what changed. A hold then writes one row on one page; the indexes are left alone. Who holds what is only asked once
 * per beat, so that it is looked for in the records that are held instead of being kept in a table of its own.
 */

import type { DatabaseSync } from "node:sqlite";
import type { InstanceId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import { isHeld, type Obituary, type SandboxRecord } from "../record.ts";
import type { ListFilter, Session } from "../store.ts";
import type { MetaRow, Tables } from "../tables.ts";
import { toCount, toMeta, toObituary, toRecord, toSession } from "./rows.ts";

/** Enough to explain yesterday, bounded for ever. */
const OBITUARIES_MAX = 1_000;

/** Room for a hold or two. Larger would waste more than it saves. */
const BODY_STEP_CHARS = 256;

export class SqliteTables implements Tables {
  readonly now: () => number;
  readonly #sql: ReturnType<typeof prepareAll>;
  /** Records as they are in the file, as far as this transaction has read or written them. */
  readonly #seen = new Map<SandboxId, SandboxRecord>();

  constructor(db: DatabaseSync, now: () => number) {
    this.now = now;
    this.#sql = prepareAll(db);
  }

  /** Forgets what the last transaction saw. To be called before each one. */
  forget(): void {
    this.#seen.clear();
  }

  meta(): MetaRow {
    return toMeta(this.#sql.meta.get());
  }

  putMeta(meta: MetaRow): void {
    this.#sql.putMeta.run(meta.epoch, meta.recovering ? 1 : 0, meta.generation);
  }

  session(instance: InstanceId): Session | null {
    const row = this.#sql.session.get(instance);
    return row === undefined ? null : toSession(row);
  }

  sessions(): readonly Session[] {
    return this.#sql.sessions.all().map(toSession);
  }

  putSession({ instance, beat, lastBeatAt, identity }: Session): void {
    this.#sql.putSession.run(instance, beat, lastBeatAt, JSON.stringify(identity));
  }

  deleteSession(instance: InstanceId): void {
    this.#sql.deleteSession.run(instance);
  }

  record(sandboxId: SandboxId): SandboxRecord | null {
    return this.#one(this.#sql.record.get(sandboxId));
  }

  recordOf(user: UserId, thread: ThreadId): SandboxRecord | null {
    return this.#one(this.#sql.recordOf.get(user, thread));
  }

  recordWithLease(leaseId: string): SandboxRecord | null {
    return this.#one(this.#sql.recordWithLease.get(leaseId));
  }

  records(filter?: ListFilter): readonly SandboxRecord[] {
    return this.#rowsOf(filter).map((row) => this.#remember(toRecord(row)));
  }

  #rowsOf(filter: ListFilter | undefined) {
    if (filter === undefined) return this.#sql.records.all();
    if ("blankOf" in filter) return this.#sql.recordsBlank.all(filter.blankOf);
    return "parked" in filter ? this.#sql.recordsParked.all() : this.#sql.recordsActing.all();
  }

  recordsHeldBy(instance: InstanceId): readonly SandboxRecord[] {
    return this.#sql.recordsHeldBy.all(instance).map((row) => this.#remember(toRecord(row)));
  }

  countAll(): number {
    return toCount(this.#sql.countAll.get());
  }

  countOf(user: UserId): number {
    return toCount(this.#sql.countOf.get(user));
  }

  putRecord(record: SandboxRecord): void {
    const old = this.#seen.get(record.sandboxId) ?? this.record(record.sandboxId);
    const { sandboxId, user, thread, state, blueprintHash } = record;
    const held = isHeld(record) ? 1 : 0;
    const body = padded(JSON.stringify(record));
    if (old === null) {
      this.#sql.insertRecord.run(sandboxId, user, thread, state, blueprintHash, held, body);
    } else if (
      old.state === state &&
      old.thread === thread &&
      old.user === user &&
      old.blueprintHash === blueprintHash
    ) {
      this.#sql.updateBody.run(held, body, sandboxId);
    } else {
      this.#sql.updateRecord.run(user, thread, state, blueprintHash, held, body, sandboxId);
    }
    this.#putLeases(record, old?.leases ?? {});
    this.#seen.set(sandboxId, record);
  }

  #putLeases({ sandboxId, leases }: SandboxRecord, old: SandboxRecord["leases"]): void {
    for (const leaseId in old) if (!(leaseId in leases)) this.#sql.deleteLease.run(leaseId, sandboxId);
    for (const leaseId in leases) if (!(leaseId in old)) this.#sql.insertLease.run(leaseId, sandboxId);
  }

  deleteRecord(sandboxId: SandboxId): void {
    const old = this.#seen.get(sandboxId) ?? this.record(sandboxId);
    if (old === null) return;
    this.#putLeases({ ...old, leases: {} }, old.leases);
    this.#sql.deleteRecord.run(sandboxId);
    this.#seen.delete(sandboxId);
  }

  obituary(sandboxId: SandboxId): Obituary | null {
    const row = this.#sql.obituary.get(sandboxId);
    return row === undefined ? null : toObituary(row);
  }

  putObituary(obituary: Obituary): void {
    this.#sql.putObituary.run(obituary.sandboxId, JSON.stringify(obituary));
    this.#sql.trimObituaries.run(OBITUARIES_MAX);
  }

  #one(row: Readonly<Record<string, unknown>> | undefined): SandboxRecord | null {
    return row === undefined ? null : this.#remember(toRecord(row));
  }

  #remember(record: SandboxRecord): SandboxRecord {
    this.#seen.set(record.sandboxId, record);
    return record;
  }
}

/**
 * Spaces at the end, which JSON allows. A record that is held and let go then keeps its length, and SQLite writes it over
 * the old one in place instead of making room for it on the page.
 */
function padded(json: string): string {
  return json.padEnd(Math.ceil(json.length / BODY_STEP_CHARS) * BODY_STEP_CHARS);
}

function prepareAll(db: DatabaseSync) {
  const prepare = (sql: string) => db.prepare(sql);
  return {
    meta: prepare("SELECT epoch, recovering, generation FROM meta"),
    putMeta: prepare("UPDATE meta SET epoch = ?, recovering = ?, generation = ?"),
    session: prepare("SELECT instance, beat, last_beat_at, identity FROM sessions WHERE instance = ?"),
    sessions: prepare("SELECT instance, beat, last_beat_at, identity FROM sessions"),
    putSession: prepare("INSERT OR REPLACE INTO sessions (instance, beat, last_beat_at, identity) VALUES (?, ?, ?, ?)"),
    deleteSession: prepare("DELETE FROM sessions WHERE instance = ?"),
    record: prepare("SELECT sandbox_id, body FROM records WHERE sandbox_id = ?"),
    recordOf: prepare("SELECT sandbox_id, body FROM records WHERE user = ? AND thread = ?"),
    recordWithLease: prepare("SELECT sandbox_id, body FROM leases JOIN records USING (sandbox_id) WHERE lease_id = ?"),
    records: prepare("SELECT sandbox_id, body FROM records"),
    recordsBlank: prepare(
      "SELECT sandbox_id, body FROM records WHERE state = 'ready' AND thread IS NULL AND blueprint_hash = ?",
    ),
    recordsParked: prepare(
      "SELECT sandbox_id, body FROM records WHERE state = 'ready' AND thread IS NOT NULL AND held = 0",
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
      "UPDATE records SET user = ?, thread = ?, state = ?, blueprint_hash = ?, held = ?, body = ? WHERE sandbox_id = ?",
    ),
    updateBody: prepare("UPDATE records SET held = ?, body = ? WHERE sandbox_id = ?"),
    deleteRecord: prepare("DELETE FROM records WHERE sandbox_id = ?"),
    insertLease: prepare("INSERT OR REPLACE INTO leases (lease_id, sandbox_id) VALUES (?, ?)"),
    deleteLease: prepare("DELETE FROM leases WHERE lease_id = ? AND sandbox_id = ?"),
    obituary: prepare("SELECT sandbox_id, body FROM obituaries WHERE sandbox_id = ?"),
    putObituary: prepare("INSERT OR REPLACE INTO obituaries (sandbox_id, body) VALUES (?, ?)"),
    trimObituaries: prepare(
      "DELETE FROM obituaries WHERE ordinal <= (SELECT ordinal FROM obituaries ORDER BY ordinal DESC LIMIT 1 OFFSET ?)",
    ),
  };
}
