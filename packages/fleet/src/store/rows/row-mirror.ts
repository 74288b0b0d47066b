/**
 * Every row as this process knows it: from the answers of the server, and from scans that bring it up to date. The
 * rows are what steps run over; a commit then shows whether they were the present ones.
 *
 * Invariants
 * - A row of a higher number replaces one of a lower number, never the other way round: answers overtake one another.
 *   The exception is an answer to a request that was sent after the higher number was learned: then the server has
 *   lost writes (`learn` returns true).
 * - After the first whole scan (`isComplete`) a row that is not here is presumed absent.
 * - Deleted rows are forgotten after `ABSENT_KEPT_MS`, before the server forgets them.
 * - `tables` holds the parsed records, sessions, tombstones and entries, to search in. A damaged row is not in it; `damaged`
 *   names it.
 */

import type { Epoch, SandboxId } from "@sandlot/contract";
import type { SharedEntry } from "../entries.ts";
import { MemoryTables } from "../memory/memory-tables.ts";
import type { SandboxRecord, Tombstone } from "../record.ts";
import type { ThreadHome } from "../transfer/store-transfer.ts";
import { type BeatBody, parseBody, type SessionBody } from "./row-body.ts";
import { beatKey, idOf, tableOf } from "./row-key.ts";
import { MARKERS_KEPT_MS, type Row, type RowKey } from "./row-server.ts";

const ABSENT_KEPT_MS = MARKERS_KEPT_MS / 2;

interface KnownRow {
  readonly seq: number;
  readonly body: string | null;
  /** When an answer last showed it, on the monotonic clock and on the server's. */
  learnedAt: number;
  serverAt: number;
  /** Parsed on first use. */
  value: unknown;
  isParsed: boolean;
}

export class RowMirror {
  readonly #monotonicMs: () => number;
  readonly #serverMs: () => number;
  readonly #rows = new Map<RowKey, KnownRow>();
  readonly #absent = new Map<RowKey, number>();
  readonly damaged = new Map<RowKey, unknown>();
  readonly #sessions = new Map<RowKey, SessionBody>();
  readonly #beats = new Map<RowKey, BeatBody>();
  readonly #tombstones = new Map<RowKey, Tombstone>();
  readonly #homes = new Map<RowKey, ThreadHome>();
  readonly #entries = new Map<RowKey, string>();
  tables: MemoryTables = newTables();
  isComplete = false;

  /** `serverMs`: the server's clock, as far as it is known. */
  constructor(monotonicMs: () => number, serverMs: () => number) {
    this.#monotonicMs = monotonicMs;
    this.#serverMs = serverMs;
  }

  clear(): void {
    this.#rows.clear();
    this.#absent.clear();
    this.damaged.clear();
    for (const table of [this.#sessions, this.#beats, this.#tombstones, this.#homes, this.#entries]) table.clear();
    this.tables = newTables();
    this.isComplete = false;
  }

  /** `undefined`: never seen. */
  seqOf(key: RowKey): number | undefined {
    return this.#rows.get(key)?.seq;
  }

  /** `null`: absent, or never seen. Throws `store_corrupt`. The value must not be changed. */
  valueOf(key: RowKey): unknown {
    const row = this.#rows.get(key);
    if (row === undefined || row.body === null) return null;
    if (!row.isParsed) {
      row.value = parseBody(key, row.body);
      row.isParsed = true;
    }
    return row.value;
  }

  /** Rows of an answer to a request that was sent at `sentAt`. Returns whether they prove that writes were lost. */
  learn(rows: readonly Row[], sentAt: number): boolean {
    let isRewound = false;
    const now = this.#monotonicMs();
    for (const row of rows) {
      const known = this.#rows.get(row.key);
      if (known !== undefined && known.seq > row.seq) {
        if (known.learnedAt >= sentAt) continue;
        if (this.#isProof(known, row)) isRewound = true;
        // The server has forgotten the row: an old number would conflict for ever.
        else this.#put(row.key, row.seq, row.body, now);
      } else if (known?.seq === row.seq && known.body === row.body) {
        known.learnedAt = now;
        known.serverAt = this.#serverMs();
      } else this.#put(row.key, row.seq, row.body, now);
    }
    return isRewound;
  }

  /** A row that this process has written. Its value is known already. */
  wrote(key: RowKey, seq: number, value: unknown, body: string | null): void {
    const known = this.#rows.get(key);
    if (known !== undefined && known.seq >= seq) return;
    this.#put(key, seq, body, this.#monotonicMs(), body === null ? undefined : { value });
  }

  /** A scan from the beginning is whole: every row that it did not show, and that was known before, is gone. */
  loaded(shown: ReadonlySet<RowKey>, sentAt: number): void {
    for (const [key, { learnedAt }] of [...this.#rows]) if (!shown.has(key) && learnedAt < sentAt) this.#forget(key);
  }

  /** A scan is whole. */
  scanned(): void {
    this.isComplete = true;
    const now = this.#monotonicMs();
    for (const [key, at] of this.#absent) {
      if (now - at <= ABSENT_KEPT_MS) break;
      this.#forget(key);
    }
  }

  sessions(): readonly { readonly session: SessionBody; readonly beat: BeatBody }[] {
    return [...this.#sessions.values()].flatMap((session) => {
      const beat = this.#beats.get(beatKey(session.instance));
      return beat === undefined ? [] : { session, beat };
    });
  }

  /** The tombstones, the oldest first. */
  tombstones(): readonly Tombstone[] {
    return [...this.#tombstones.values()].sort((one, other) => one.stoppedAt - other.stoppedAt);
  }

  homes(): readonly ThreadHome[] {
    return [...this.#homes.values()];
  }

  entries(): readonly SharedEntry[] {
    return [...this.#entries].map(([key, body]) => ({ name: idOf(key), body, seq: this.seqOf(key) ?? 0 }));
  }

  /**
   * Whether an answer proves that writes were lost. A server forgets the number of a deleted row after
   * `MARKERS_KEPT_MS`: only a row that existed shortly before, on both clocks, cannot be forgotten already. A clock may
   * have stood still or jumped.
   */
  #isProof(known: KnownRow, row: Row): boolean {
    if (row.seq > 0) return true;
    if (known.body === null) return false;
    const ages = [this.#monotonicMs() - known.learnedAt, Math.abs(this.#serverMs() - known.serverAt)];
    return Math.max(...ages) < ABSENT_KEPT_MS;
  }

  #put(key: RowKey, seq: number, body: string | null, learnedAt: number, parsed?: { readonly value: unknown }): void {
    this.#absent.delete(key);
    const row = {
      seq,
      body,
      learnedAt,
      serverAt: this.#serverMs(),
      value: parsed?.value,
      isParsed: parsed !== undefined,
    };
    this.#rows.set(key, row);
    this.damaged.delete(key);
    if (body === null) {
      this.#absent.set(key, learnedAt);
      this.#unindex(key);
    } else this.#index(key);
  }

  #forget(key: RowKey): void {
    this.#rows.delete(key);
    this.#absent.delete(key);
    this.damaged.delete(key);
    this.#unindex(key);
  }

  #index(key: RowKey): void {
    if (!INDEXED.has(tableOf(key))) return;
    let value: unknown;
    try {
      value = this.valueOf(key);
    } catch (error) {
      // The steps that need it report it.
      this.#unindex(key);
      this.damaged.set(key, error);
      return;
    }
    const table = tableOf(key);
    if (table === "record") this.tables.putRecord(value as SandboxRecord);
    else if (table === "tombstone") this.#tombstones.set(key, value as Tombstone);
    else if (table === "home") this.#homes.set(key, value as ThreadHome);
    else if (table === "entry") this.#entries.set(key, value as string);
    else if (table === "session") this.#sessions.set(key, value as SessionBody);
    else this.#beats.set(key, value as BeatBody);
  }

  #unindex(key: RowKey): void {
    const table = tableOf(key);
    if (table === "record") this.tables.deleteRecord(idOf(key) as SandboxId);
    this.#tombstones.delete(key);
    this.#homes.delete(key);
    this.#entries.delete(key);
    this.#sessions.delete(key);
    this.#beats.delete(key);
  }
}

const INDEXED = new Set(["record", "tombstone", "home", "session", "beat", "entry"]);

/** Only searched in: it needs neither a clock nor an epoch. */
function newTables(): MemoryTables {
  return new MemoryTables(
    () => 0,
    () => "" as Epoch,
    true,
  );
}
