/**
 * The SQLite store: one file, shared by every Sandlot process of one host.
 *
 * - A step is one transaction on one connection, begun and ended in one call. `kill -9` at any moment leaves the state
 *   before it or after it, and an answered step stays.
 * - The store waits for a locked file between short tries, never inside one, so that a peer that was stopped inside a
 *   transaction cannot freeze this process. Writers wait in line and only the first one tries.
 * - A deleted file that is still open takes writes that no process would ever read. So every beat, every step of a move,
 *   and any other step if the last look is old, compares the file in place with the open one. Deleted: every step is `store_unavailable`
 *   until a file is there again. Replaced: the store opens the new one, which has a new epoch.
 *
 * Errors: `store_corrupt` when the content of the file is unusable and only a person can change that;
 * `store_unavailable` for everything that the machine refuses (locked, deleted, read-only, no permission, disk full),
 * because it ends when the machine allows it again, without a restart.
 */

import { realpathSync, rmdirSync, rmSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { makeDirectories } from "../../world/make-directories.ts";
import { troubleOf } from "../../world/sqlite-driver.ts";
import type { World } from "../../world/world.ts";
import type { Tables } from "../tables.ts";
import { TransactionalStore } from "../transactional-store.ts";
import { ChangeWatch } from "./change-watch.ts";
import type { Connection } from "./connection.ts";
import { type Patience, pause } from "./contention.ts";
import { identify, isSameOpenFile } from "./file.ts";
import { sharedFileSystem } from "./file-system.ts";
import { absent, openFile, tooNew, translate, unavailable } from "./open-database.ts";

export interface SqliteStoreOptions {
  readonly path: string;
  readonly world: World;
  /** How long one step may wait for a locked file before it is `store_unavailable`. */
  readonly operationTimeoutMs?: number;
  /** The number of a path's file system type. */
  readonly fileSystemOf?: (path: string) => number;
}

/** Orders of magnitude longer than any honest transaction, shorter than a caller's patience. */
const OPERATION_TIMEOUT_MS = 5_000;
/** How old the last look at the file may be. A look costs a few microseconds. */
const LOOK_AGE_MAX_MS = 250;
/** Steps after which nothing would notice that the file is another one: a move has no beats. */
const LOOKS_FIRST = new Set(["beat", "beginTransfer", "importRows", "finishImport", "overview"]);

/** Opens the store at `path`, and makes it (and its directory) if there never was one. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<SqliteStore> {
  const { world, operationTimeoutMs = OPERATION_TIMEOUT_MS } = options;
  const path = resolve(options.path);
  const patience = { world, operation: "open", deadline: world.monotonicMs() + operationTimeoutMs };
  let made: string | undefined;
  try {
    made = makeDirectories(dirname(path), 0o700);
    const real = realPath(path);
    requireLocal(real, options.fileSystemOf);
    return new SqliteStore(real, world, operationTimeoutMs, await openFile(real, patience, null));
  } catch (error) {
    if (made !== undefined) removeEmpty(dirname(path), made);
    throw translate(error, path, "open");
  }
}

export class SqliteStore extends TransactionalStore {
  readonly kind = "sqlite";
  readonly isShared = false;
  readonly path: string;
  readonly #world: World;
  readonly #operationTimeoutMs: number;
  readonly #watch: ChangeWatch;
  /** `null` after a replacement that could not be opened; then `#trouble` says why. */
  #connection: Connection | null;
  #known: Connection["epoch"];
  #trouble: Error | null = null;
  #lookedAt: number;
  #reopening: Promise<void> | null = null;
  /** The writer that waits for the lock; the other writers wait for it. */
  #firstInLine: Promise<void> | null = null;
  #closed = false;

  /** Use `openSqliteStore`. */
  constructor(path: string, world: World, operationTimeoutMs: number, connection: Connection) {
    super();
    this.path = path;
    this.#world = world;
    this.#operationTimeoutMs = operationTimeoutMs;
    this.#connection = connection;
    this.#known = connection.epoch;
    this.#lookedAt = world.monotonicMs();
    this.#watch = new ChangeWatch({ path, world, version: () => this.#dataVersion() });
  }

  protected async run<T>(operation: string, access: "read" | "write", step: (tables: Tables) => T): Promise<T> {
    const now = this.#world.monotonicMs();
    const patience = { world: this.#world, operation, deadline: now + this.#operationTimeoutMs };
    // All wait equally long, so the first in line is done before those behind it run out of time.
    if (access === "write") while (this.#firstInLine !== null) await this.#firstInLine;
    if (this.#isLookDue(operation, now)) await this.#look(patience);
    try {
      return this.#attempt(patience, access, step);
    } catch (error) {
      if (troubleOf(error)?.kind !== "busy") throw translate(error, this.path, operation);
      return access === "write"
        ? this.#standInLine(() => this.#persist(patience, access, step, error))
        : this.#persist(patience, access, step, error);
    }
  }

  watch(hint: () => void): () => void {
    return this.#closed ? () => {} : this.#watch.add(hint);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#watch.close();
    await this.#reopening?.catch(() => {});
    this.#connection?.close();
    this.#connection = null;
  }

  #attempt<T>({ operation }: Patience, access: "read" | "write", step: (tables: Tables) => T): T {
    if (this.#closed) throw unavailable(operation, "it is closed");
    if (this.#connection === null) throw this.#trouble ?? unavailable(operation, "it is being opened again");
    const connection = this.#connection;
    const before = connection.changeCount;
    const result = connection.transact(access, step);
    // The watch sees only the commits of other processes, not our own.
    if (connection.changeCount !== before) this.#watch.hint();
    return result;
  }

  /** Tries again until the file is free. Before each try it checks that the file is still the same. */
  async #persist<T>(
    patience: Patience,
    access: "read" | "write",
    step: (tables: Tables) => T,
    first: unknown,
  ): Promise<T> {
    let busy = first;
    for (let tries = 0; ; tries += 1) {
      await pause(patience, tries, busy);
      if (this.#isLookDue(patience.operation, this.#world.monotonicMs())) await this.#look(patience);
      try {
        return this.#attempt(patience, access, step);
      } catch (error) {
        if (troubleOf(error)?.kind !== "busy") throw translate(error, this.path, patience.operation);
        busy = error;
      }
    }
  }

  async #standInLine<T>(wait: () => Promise<T>): Promise<T> {
    while (this.#firstInLine !== null) await this.#firstInLine;
    const turn = wait();
    const ended = () => {
      this.#firstInLine = null;
    };
    this.#firstInLine = turn.then(ended, ended);
    return turn;
  }

  #isLookDue(operation: string, now: number): boolean {
    if (this.#closed) return false;
    return (
      this.#reopening !== null ||
      LOOKS_FIRST.has(operation) ||
      now - this.#lookedAt >= LOOK_AGE_MAX_MS ||
      this.#trouble !== null
    );
  }

  /** Compares the file in place with the open one. Rejects while the file is unusable. */
  async #look(patience: Patience): Promise<void> {
    if (this.#reopening !== null) return this.#reopening;
    const { operation } = patience;
    const now = this.#world.monotonicMs();
    // Opening reads the whole file, so an unusable one is not opened in every step.
    if (this.#connection === null && this.#trouble !== null && now - this.#lookedAt < LOOK_AGE_MAX_MS)
      throw this.#trouble;
    this.#lookedAt = now;
    try {
      const file = identify(this.path);
      if (file === null) throw absent(this.path, operation);
      if (this.#connection === null || !isSameOpenFile(file, this.#connection.file)) {
        this.#reopening = this.#reopen(patience).finally(() => {
          this.#reopening = null;
        });
        return await this.#reopening;
      }
      if (file.sizeBytes === 0n) throw this.#corrupt("the file was cut down to nothing while it was open");
      if (!this.#connection.isReadable()) throw tooNew(this.path, operation);
      this.#trouble = null;
    } catch (error) {
      // A lock does not tell which file it is.
      if (troubleOf(error)?.kind === "busy") return;
      this.#trouble = translate(error, this.path, operation);
      throw this.#trouble;
    }
  }

  async #reopen(patience: Patience): Promise<void> {
    const old = this.#connection;
    this.#connection = null;
    old?.close();
    // SQLite finds these by name, and would replay the old file's WAL into the new one. Their inodes identify them:
    // another process may have begun new ones already.
    for (const { path, file } of old?.sideFiles() ?? []) {
      const found = identify(path);
      if (file !== null && found !== null && isSameOpenFile(file, found)) rmSync(path, { force: true });
    }
    const connection = await openFile(this.path, patience, this.#known);
    if (this.#closed) return connection.close();
    this.#connection = connection;
    this.#known = connection.epoch;
    this.#trouble = null;
    this.#watch.hint();
  }

  #corrupt(problem: string): SandlotError {
    return new SandlotError("store_corrupt", { path: this.path, problem });
  }

  #dataVersion(): unknown {
    try {
      return this.#connection?.dataVersion() ?? null;
    } catch {
      // The next read reports the error.
      return null;
    }
  }
}

function requireLocal(path: string, fileSystemOf: SqliteStoreOptions["fileSystemOf"]): void {
  const shared = sharedFileSystem(dirname(path), fileSystemOf);
  if (shared === null) return;
  const why = `it is on ${shared}, which several hosts can mount without sharing the database's memory`;
  throw unavailable("open", `${path} cannot hold the store: ${why}; set store.path to a local disk`);
}

/** SQLite names the files beside a database after the target of a link; so does this store. */
function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return join(realpathSync(dirname(path)), basename(path));
  }
}

/** Removes the directories that a failed open has made. */
function removeEmpty(directory: string, first: string): void {
  try {
    for (let current = directory; current.startsWith(first); current = dirname(current)) rmdirSync(current);
  } catch {
    // Another program put something there.
  }
}
