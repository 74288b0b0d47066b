/**
 * One connection's cache of the rows that the hot steps read.
 *
 * Invariant: the cache matches the file as long as no other connection has committed since `#version` was read.
 * `PRAGMA data_version` tells exactly that. It changes when this connection finds another one's commit in the WAL,
 * which is also when SQLite drops its own page cache; commits of this connection do not change it.
 * - Every step begins with `validate`. A writing step reads the version after `BEGIN IMMEDIATE`, when no other
 *   connection can commit. A reading step is a single statement: rows outside the cache are as of then or later, and
 *   if later, the next step finds another version and clears the cache.
 * - A write of this connection updates the cache in the same call. A transaction that does not commit clears it.
 * - A file that is opened again, or replaced, is another connection with its own cache.
 * - Every entry may go at any moment. The cache never remembers that a row does not exist.
 */

import type { InstanceId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import type { SandboxRecord } from "../record.ts";
import type { StoredMeta } from "./rows.ts";

/** A few megabytes at most. A full cache starts over: simpler than tracking the last use. */
const ENTRIES_MAX = 4_096;

export interface RecordRow {
  /** SQLite's own key: it reaches a row without an index. */
  readonly rowid: number | bigint;
  readonly record: SandboxRecord;
  /** The text of the fields that rarely change (see `body.ts`); `null` until the record is first written. */
  readonly fixed: string | null;
}

export class RowCache {
  meta: StoredMeta | null = null;
  #version: unknown = null;
  readonly #sessions = new Set<InstanceId>();
  readonly #records = new Map<SandboxId, RecordRow>();
  readonly #threads = new Map<UserId, Map<ThreadId, RecordRow>>();

  /** Clears the cache if the file has another version. */
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

  /** How many users have entries. */
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
