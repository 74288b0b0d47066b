/**
 * The contract between a shared store and its database: rows of text, and commits that are checked by the server.
 *
 * `transactions/` defines each step of the store once, in TypeScript. `RowStore` runs a step over rows that it has
 * read, and sends the result as one commit. The server compares the rows that the step has read and applies its writes.
 * It knows nothing of sandboxes.
 *
 *   client                                   server
 *   step over rows it knows
 *   commit { reads, writes } ──────────────▶ are all reads still the latest? apply the writes : nothing
 *                            ◀────────────── committed, or conflict with the present rows
 *   after a conflict: the step runs again over the present rows
 *
 * Rules for every implementation (each is a test of `testing/row-server-suite.ts`)
 * - A commit is atomic, and every answer `committed` is as durable as the server's promise says.
 * - A write gives a row a sequence number that this row never had before. A later write has a higher one. A server that
 *   may rewind gives the number of a lost write no second time: `max(last + 1, clock in microseconds)` is enough.
 * - A deleted row keeps its sequence number for `MARKERS_KEPT_MS`, so that a client that knew it as absent sees a
 *   conflict when it came and went.
 * - A commit with a known id is answered as the first time and not applied again, for `COMMITS_KEPT_MS`.
 * - The server checks in this order: epoch, id, `seen`, `notAfter`, reads.
 * - Every call ends soon after its signal aborts. The commit may still take effect, but not after `notAfter`.
 * - A call that cannot be answered rejects with `store_unavailable`. The client queues nothing while it reconnects.
 * - Keys, bodies and commits may be as big as `KEY_MAX_CHARS`, `BODY_MAX_BYTES` and `COMMIT_ROWS_MAX` say.
 * - Keys and bodies are Unicode text without the character NUL.
 */

import type { Epoch } from "@sandlot/contract";

/** The name of a table, a slash and an id: `record/…`. Rows of the tables in `KEPT_TABLES` survive a new epoch. */
export type RowKey = string;
/** What changed, for waiting callers. Short, printable ASCII without spaces. */
export type Topic = string;
/** Where a scan has come to. Only its server understands it. */
export type Cursor = string;

/** How long the server remembers the id of a commit. */
export const COMMITS_KEPT_MS = 600_000;
/** How long the server keeps the sequence number of a deleted row. A client forgets absent rows before. */
export const MARKERS_KEPT_MS = 600_000;
/** Facts that no engine can tell again after a loss: where threads live, and what operators made. */
export const KEPT_TABLES: readonly string[] = ["home", "entry"];

/** Keys consist of short names and ids. */
export const KEY_MAX_CHARS = 512;
/** A record with hundreds of remote leases stays far below. */
export const BODY_MAX_BYTES = 1_048_576;
/** The reads of one commit: an instance that re-registers takes all its holds at once. */
export const COMMIT_ROWS_MAX = 5_000;

export interface Row {
  readonly key: RowKey;
  /** The number of its last write; 0: the server does not know the row. */
  readonly seq: number;
  /** `null`: deleted, or never written. */
  readonly body: string | null;
}

export interface RowServer {
  /** The type of the store: `postgres`, `redis`. */
  readonly kind: string;
  /** Whether a failover can lose acknowledged commits. `seen` then notices it. */
  readonly promise: "linearizable" | "may-rewind";
  commit(commit: Commit, signal: AbortSignal): Promise<CommitAnswer>;
  /** The present rows, in the order of `keys`. */
  read(keys: readonly RowKey[], signal: AbortSignal): Promise<ReadAnswer>;
  /**
   * Every row that was written after `since`, deleted ones too, in pages; with `null` every row that exists. A row may
   * appear again although it did not change. `null` as the answer: the cursor is too old, of another epoch, or from
   * before a failover; begin with `null`.
   */
  scan(since: Cursor | null, limit: number, signal: AbortSignal): Promise<Page | null>;
  /**
   * Begins the epoch `next` if the present one is `known`: every row of the earlier epoch goes, except those of
   * `KEPT_TABLES`. Returns the present epoch.
   */
  beginEpoch(known: Epoch, next: Epoch, signal: AbortSignal): Promise<Epoch>;
  /** Hints only. "*" means that topics may have been missed, as after every reconnect. Returns an unsubscribe function. */
  subscribe(listener: (topic: Topic | "*") => void): () => void;
  close(): Promise<void>;
}

export interface Commit {
  readonly id: string;
  readonly epoch: Epoch;
  /**
   * Acknowledged commits that must be there. Each acknowledged commit vouches for all that it has named here, so the
   * client names only those for which none vouches yet.
   */
  readonly seen: readonly string[];
  /** The server's time when the oldest of `seen` was acknowledged. Older than half of `COMMITS_KEPT_MS`: not checked. */
  readonly seenAt: number;
  /** On the server's clock. A commit that arrives later changes nothing. */
  readonly notAfter: number;
  /** The rows that the step has read, with the sequence numbers it knows. */
  readonly reads: ReadonlyMap<RowKey, number>;
  /**
   * `null` deletes. Each written row is also in `reads`. May be empty: then the commit only checks, and the server need
   * not remember its id.
   */
  readonly writes: ReadonlyMap<RowKey, string | null>;
  readonly topics: readonly Topic[];
  /** The caller acts on the answer outside the store: where the server has replicas, wait for one of them. */
  readonly isDurable: boolean;
}

export type CommitAnswer =
  | { readonly kind: "committed"; readonly seq: number; readonly now: number }
  /** The present rows of `reads` that differ, at least one. Nothing was applied. */
  | { readonly kind: "conflict"; readonly rows: readonly Row[]; readonly now: number }
  | { readonly kind: "new-epoch"; readonly epoch: Epoch; readonly now: number }
  /** The server has lost a commit of `seen`. Nothing was applied. */
  | { readonly kind: "rewound"; readonly now: number }
  /** It arrived after `notAfter`. Nothing was applied. */
  | { readonly kind: "late"; readonly now: number };

export interface ReadAnswer {
  readonly rows: readonly Row[];
  readonly epoch: Epoch;
  /** The server's clock, in Unix milliseconds. */
  readonly now: number;
}

export interface Page {
  readonly rows: readonly Row[];
  /** Pass it to the next scan. */
  readonly cursor: Cursor;
  /** Another page follows at once. */
  readonly more: boolean;
  readonly epoch: Epoch;
  readonly now: number;
}
