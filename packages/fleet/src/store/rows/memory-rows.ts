/**
 * The rows of a row server, in memory: the whole of `row-server.ts` as synchronous steps. `MemoryRowServer` is a client
 * of it; the simulation puts a network between the two.
 *
 * Invariants
 * - A step is synchronous, so it is atomic.
 * - `#log` names every row in the order of its last write, and of its key within a commit. An entry counts only if it is
 *   the row's last one.
 * - A sequence number is never behind the clock, in microseconds. So the number of a lost write is not given again
 *   after `rewind`, and a client that knows a lost row meets a conflict.
 * - `#undo` can take back the steps of the last `UNDO_KEPT_MS`, for `rewind`.
 */

import type { Epoch } from "@sandlot/contract";
import {
  COMMITS_KEPT_MS,
  type Commit,
  type CommitAnswer,
  type Cursor,
  KEPT_TABLES,
  MARKERS_KEPT_MS,
  type Page,
  type ReadAnswer,
  type Row,
  type RowKey,
  type Topic,
} from "./row-server.ts";

const UNDO_KEPT_MS = 10_000;
const MICROS = 1_000;

interface StoredRow {
  readonly seq: number;
  /** `null`: a deletion marker. */
  readonly body: string | null;
  readonly writtenAt: number;
}

interface LogEntry {
  readonly seq: number;
  readonly key: RowKey;
}

/** Where a scan has come to. `base`: the last number when a scan of everything began; `null`: it scans changes. */
interface Position extends LogEntry {
  readonly base: number | null;
}

/** Behind every key of its commit. */
const END_KEY = "\u{10ffff}";

/** Hears of each step that takes effect, just before it does. */
export interface MemoryRowsAudit {
  /** Not called for a commit that is answered by its id, nor for one without writes. */
  committing(commit: Commit): void;
  epochBegins(): void;
}

export class MemoryRows {
  readonly #clock: () => number;
  readonly #newEpoch: () => Epoch;
  readonly #listeners = new Set<(topic: Topic) => void>();
  #rows = new Map<RowKey, StoredRow>();
  #log: LogEntry[] = [];
  #commits = new Map<string, { readonly seq: number; readonly at: number }>();
  #undo: { readonly id: string; readonly at: number; readonly back: () => void }[] = [];
  #epoch: Epoch;
  #lastSeq = 0;
  /** The highest number of a deletion marker that was dropped: an older cursor would miss that deletion. */
  #droppedSeq = 0;
  /** Another one after each rewind: a cursor of a history that was lost is too old. */
  #history = 1;
  #agedMs = 0;
  #trimmedAt = Number.NEGATIVE_INFINITY;
  audit: MemoryRowsAudit | null = null;

  /** `clock`: Unix milliseconds. */
  constructor(clock: () => number, newEpoch: () => Epoch) {
    this.#clock = clock;
    this.#newEpoch = newEpoch;
    this.#epoch = newEpoch();
  }

  get epoch(): Epoch {
    return this.#epoch;
  }

  now(): number {
    return Math.floor(this.#clock());
  }

  commit(commit: Commit): CommitAnswer {
    const now = this.now();
    this.#trim(now);
    if (commit.epoch !== this.#epoch) return { kind: "new-epoch", epoch: this.#epoch, now };
    const known = this.#commits.get(commit.id);
    if (known !== undefined) return { kind: "committed", seq: known.seq, now };
    const isChecked = now - commit.seenAt <= COMMITS_KEPT_MS / 2;
    if (isChecked && commit.seen.some((id) => !this.#commits.has(id))) return { kind: "rewound", now };
    if (now > commit.notAfter) return { kind: "late", now };
    const rows: Row[] = [];
    for (const [key, seq] of commit.reads) {
      const row = this.#row(key);
      if (row.seq !== seq) rows.push(row);
    }
    if (rows.length > 0) return { kind: "conflict", rows, now };
    return { kind: "committed", seq: this.#apply(commit, now), now };
  }

  read(keys: readonly RowKey[]): ReadAnswer {
    return { rows: keys.map((key) => this.#row(key)), epoch: this.#epoch, now: this.now() };
  }

  scan(since: Cursor | null, limit: number): Page | null {
    const now = this.now();
    this.#trim(now);
    const position = since === null ? { seq: 0, key: "", base: this.#lastSeq } : this.#position(since);
    if (position === null) return null;
    const rows: Row[] = [];
    let last: LogEntry = position;
    let at = this.#indexAfter(position);
    for (; at < this.#log.length && rows.length < limit; at += 1) {
      const entry = this.#log[at] as LogEntry;
      last = entry;
      const row = this.#rows.get(entry.key);
      if (row === undefined || row.seq !== entry.seq) continue;
      if (position.base !== null && row.body === null && row.seq <= position.base) continue;
      rows.push({ key: entry.key, seq: row.seq, body: row.body });
    }
    const more = at < this.#log.length;
    const reached = more ? [last.seq, last.key, position.base] : [Math.max(last.seq, this.#lastSeq), END_KEY, null];
    const cursor = JSON.stringify([this.#epoch, this.#history, ...reached]);
    return { rows, cursor, more, epoch: this.#epoch, now };
  }

  beginEpoch(known: Epoch, next: Epoch): Epoch {
    if (this.#epoch !== known) return this.#epoch;
    this.#keepUndo(next);
    this.audit?.epochBegins();
    this.#epoch = next;
    for (const key of [...this.#rows.keys()]) if (!isKept(key)) this.#rows.delete(key);
    this.#sortLog();
    return next;
  }

  /** Returns an unsubscribe function. */
  listen(listener: (topic: Topic) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Loses everything: another database takes its place. */
  lose(): void {
    this.#rows = new Map();
    this.#commits = new Map();
    this.#undo = [];
    this.#log = [];
    this.#history += 1;
    this.#epoch = this.#newEpoch();
  }

  /** A failover to a replica that lacks the last `ms`. Returns the ids of the lost commits, and of lost epochs. */
  rewind(ms: number): readonly string[] {
    const since = this.now() - ms;
    const lost: string[] = [];
    for (let last = this.#undo.at(-1); last !== undefined && last.at > since; last = this.#undo.at(-1)) {
      this.#undo.pop();
      last.back();
      lost.push(last.id);
    }
    if (lost.length === 0) return [];
    this.#history += 1;
    this.#sortLog();
    return lost;
  }

  /** Every replica has what was written so far: no rewind goes back further. */
  replicate(): void {
    this.#undo = [];
  }

  /** Makes what the server remembers look older, and forgets what is old enough. */
  age(ms: number): void {
    this.#agedMs += ms;
    this.#trimmedAt = Number.NEGATIVE_INFINITY;
    this.#trim(this.now());
  }

  /** Every row that exists, for checks. */
  *existing(): Generator<Row> {
    for (const [key, { seq, body }] of this.#rows) if (body !== null) yield { key, seq, body };
  }

  #apply(commit: Commit, now: number): number {
    if (commit.writes.size === 0) return this.#lastSeq;
    this.audit?.committing(commit);
    const before = new Map<RowKey, StoredRow | undefined>();
    for (const key of commit.writes.keys()) before.set(key, this.#rows.get(key));
    const seq = Math.max(this.#lastSeq + 1, now * MICROS);
    const writtenAt = now + this.#agedMs;
    const lastSeq = this.#lastSeq;
    for (const [key, body] of commit.writes) this.#rows.set(key, { seq, body, writtenAt });
    for (const key of [...commit.writes.keys()].sort()) this.#log.push({ seq, key });
    this.#lastSeq = seq;
    this.#commits.set(commit.id, { seq, at: writtenAt });
    this.#undo.push({
      id: commit.id,
      at: now,
      back: () => {
        this.#commits.delete(commit.id);
        this.#lastSeq = lastSeq;
        for (const [key, row] of before) {
          if (row === undefined) this.#rows.delete(key);
          else this.#rows.set(key, row);
        }
      },
    });
    if (this.#log.length > 2 * this.#rows.size + 1_000) this.#sortLog();
    for (const topic of commit.topics) for (const listener of [...this.#listeners]) listener(topic);
    return seq;
  }

  #keepUndo(next: Epoch): void {
    const rows = new Map(this.#rows);
    const epoch = this.#epoch;
    this.#undo.push({
      id: next,
      at: this.now(),
      back: () => {
        this.#rows = rows;
        this.#epoch = epoch;
      },
    });
  }

  #row(key: RowKey): Row {
    const row = this.#rows.get(key);
    return row === undefined ? { key, seq: 0, body: null } : { key, seq: row.seq, body: row.body };
  }

  #position(cursor: Cursor): Position | null {
    const [epoch, history, seq, key, base] = JSON.parse(cursor) as [Epoch, number, number, RowKey, number | null];
    if (epoch !== this.#epoch || history !== this.#history || (base ?? seq) < this.#droppedSeq) return null;
    return { seq, key, base };
  }

  #indexAfter(position: LogEntry): number {
    let low = 0;
    let high = this.#log.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (inOrder(this.#log[middle] as LogEntry, position) <= 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #sortLog(): void {
    this.#log = [...this.#rows].map(([key, { seq }]) => ({ key, seq })).sort(inOrder);
  }

  /** Forgets what is old. Not in each step: there may be many markers. */
  #trim(now: number): void {
    const aged = now + this.#agedMs;
    if (aged - this.#trimmedAt < 1_000) return;
    this.#trimmedAt = aged;
    for (const [id, { at }] of this.#commits) {
      if (aged - at <= COMMITS_KEPT_MS) break;
      this.#commits.delete(id);
    }
    let kept = 0;
    while (kept < this.#undo.length && now - (this.#undo[kept]?.at ?? 0) > UNDO_KEPT_MS) kept += 1;
    this.#undo.splice(0, kept);
    let dropped = 0;
    for (const { key, seq } of this.#log) {
      const row = this.#rows.get(key);
      if (row === undefined || row.seq !== seq) continue;
      if (aged - row.writtenAt <= MARKERS_KEPT_MS) break;
      if (row.body !== null) continue;
      this.#rows.delete(key);
      this.#droppedSeq = Math.max(this.#droppedSeq, seq);
      dropped += 1;
    }
    if (dropped > 0) this.#sortLog();
  }
}

function isKept(key: RowKey): boolean {
  return KEPT_TABLES.includes(key.slice(0, key.indexOf("/")));
}

function inOrder(one: LogEntry, other: LogEntry): number {
  if (one.seq !== other.seq) return one.seq - other.seq;
  return one.key === other.key ? 0 : one.key < other.key ? -1 : 1;
}
