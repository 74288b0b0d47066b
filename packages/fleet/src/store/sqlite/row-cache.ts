/**
 * What one connection knows of the file without asking it: the rows that the hot steps look at.
 *
 * Invariant: what is in here is what the file says, for as long as no other connection has committed since `#version`
 * was read. `PRAGMA data_version` tells exactly that. It changes when this connection finds another one's commit in the
 * WAL, which is also when SQLite throws its own cache of pages away; what this connection commits does not change it.
 * - Every step begins with `validate`. One that writes asks for the version after `BEGIN IMMEDIATE`, when nobody else
 *   can commit any more. One that reads is a single statement: what is not in here it reads as of then or later, and if
 *   that is later, the next step finds another version and forgets it.
 * - What this connection writes is put in here in the same call. If the transaction does not commit, everything goes.
 * - A file that is opened again, or replaced, is another connection with a cache of its own.
 * - Nothing has to be in here: every entry may go at any moment. That a row does not exist is never remembered.
 */

import type { InstanceId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import type { SandboxRecord } from "../record.ts";
import type { MetaRow } from "../tables.ts";

/** A few megabytes at the most. When it is full it starts over: simpler than keeping account of what was used last. */
const ENTRIES_MAX = 4_096;

export interface RecordRow {
  /** SQLite's own key: a row is reached by it without a detour through an index. */
  readonly rowid: number | bigint;
  readonly record: SandboxRecord;
  /** The text of what rarely changes (see `body.ts`); `null` until the record is first written. */
  readonly fixed: string | null;
}

export class RowCache {
  meta: MetaRow | null = null;
  #version: unknown = null;
  readonly #sessions = new Set<InstanceId>();
  readonly #records = new Map<SandboxId, RecordRow>();
  readonly #threads = new Map<UserId, Map<ThreadId, RecordRow>>();

  /** Forgets everything if the file is of another version than what is in here. */
  validate(version: unknown): void {
    if (version === this.#version) return;
    this.clear();
    this.#version = version;
  }

  clear(): void {
    this.#version = null;
    this.meta = null;
    this.#sessions.clear();
    this.#records.clear();
    this.#threads.clear();
  }

  hasSession(instance: InstanceId): boolean {
    return this.#sessions.has(instance);
  }

  addSession(instance: InstanceId): void {
    if (this.#sessions.size >= ENTRIES_MAX) this.#sessions.clear();
    this.#sessions.add(instance);
  }

  deleteSession(instance: InstanceId): void {
    this.#sessions.delete(instance);
  }

  record(sandboxId: SandboxId): RecordRow | undefined {
    return this.#records.get(sandboxId);
  }

  recordOf(user: UserId, thread: ThreadId): RecordRow | undefined {
    return this.#threads.get(user)?.get(thread);
  }

  /** Of how many users something is in here. */
  get userCount(): number {
    return this.#threads.size;
  }

  putRecord(row: RecordRow): void {
    const { sandboxId, user, thread } = row.record;
    const old = this.#records.get(sandboxId)?.record;
    if (old !== undefined && (old.thread !== thread || old.user !== user)) this.deleteRecord(sandboxId);
    if (this.#records.size >= ENTRIES_MAX) {
      this.#records.clear();
      this.#threads.clear();
    }
    this.#records.set(sandboxId, row);
    if (user === null || thread === null) return;
    const threads = this.#threads.get(user);
    if (threads === undefined) this.#threads.set(user, new Map([[thread, row]]));
    else threads.set(thread, row);
  }

  deleteRecord(sandboxId: SandboxId): void {
    const old = this.#records.get(sandboxId)?.record;
    this.#records.delete(sandboxId);
    if (old === undefined || old.user === null || old.thread === null) return;
    const threads = this.#threads.get(old.user);
    threads?.delete(old.thread);
    if (threads?.size === 0) this.#threads.delete(old.user);
  }
}
