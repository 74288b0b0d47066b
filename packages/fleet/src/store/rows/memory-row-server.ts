/**
 * A client of `MemoryRows`: the row server for tests. Several clients share one `MemoryRows`, as several processes
 * share one database.
 */

import { type Epoch, SandlotError } from "@sandlot/contract";
import type { MemoryRows } from "./memory-rows.ts";
import type { Commit, CommitAnswer, Cursor, Page, ReadAnswer, RowKey, RowServer, Topic } from "./row-server.ts";

export class MemoryRowServer implements RowServer {
  readonly kind = "memory-rows";
  readonly promise: RowServer["promise"];
  readonly #rows: MemoryRows;
  readonly #listeners = new Set<(topic: Topic | "*") => void>();
  readonly #unlisten: () => void;
  #isCut = false;
  #isClosed = false;

  constructor(rows: MemoryRows, promise: RowServer["promise"] = "linearizable") {
    this.#rows = rows;
    this.promise = promise;
    this.#unlisten = rows.listen((topic) => {
      if (!this.#isCut) this.#tell(topic);
    });
  }

  commit(commit: Commit, signal: AbortSignal): Promise<CommitAnswer> {
    return this.#call("commit", signal, () => this.#rows.commit(commit));
  }

  read(keys: readonly RowKey[], signal: AbortSignal): Promise<ReadAnswer> {
    return this.#call("read", signal, () => this.#rows.read(keys));
  }

  scan(since: Cursor | null, limit: number, signal: AbortSignal): Promise<Page | null> {
    return this.#call("scan", signal, () => this.#rows.scan(since, limit));
  }

  beginEpoch(known: Epoch, next: Epoch, signal: AbortSignal): Promise<Epoch> {
    return this.#call("beginEpoch", signal, () => this.#rows.beginEpoch(known, next));
  }

  subscribe(listener: (topic: Topic | "*") => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** No call reaches the rows, and no topic arrives, until `connect`. */
  cut(): void {
    this.#isCut = true;
  }

  connect(): void {
    this.#isCut = false;
    this.#tell("*");
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#unlisten();
    this.#listeners.clear();
  }

  async #call<T>(operation: string, signal: AbortSignal, step: () => T): Promise<T> {
    if (this.#isClosed) throw unavailable(operation, "it is closed");
    signal.throwIfAborted();
    if (this.#isCut) throw unavailable(operation, "the connection is cut");
    return step();
  }

  #tell(topic: Topic | "*"): void {
    for (const listener of [...this.#listeners]) listener(topic);
  }
}

function unavailable(operation: string, problem: string): SandlotError {
  return new SandlotError("store_unavailable", { operation, problem, retryAfterMs: 100 });
}
