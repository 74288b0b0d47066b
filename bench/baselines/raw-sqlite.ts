/** One SQLite write transaction per change of state, with the pragmas of the SQLite store. No reads, no checks. */

import { DatabaseSync, type StatementSync } from "node:sqlite";

export interface RawRow {
  readonly id: string;
  readonly held: string;
  readonly parked: string;
}

export class RawSqlite {
  readonly #db: DatabaseSync;
  readonly #begin: StatementSync;
  readonly #update: StatementSync;
  readonly #commit: StatementSync;

  constructor(path: string, rows: readonly RawRow[]) {
    this.#db = new DatabaseSync(path);
    this.#db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 16777216");
    this.#db.exec("CREATE TABLE records (id TEXT PRIMARY KEY, held INTEGER, body TEXT) STRICT, WITHOUT ROWID");
    const insert = this.#db.prepare("INSERT INTO records VALUES (?, 0, ?)");
    for (const { id, parked } of rows) insert.run(id, parked);
    this.#begin = this.#db.prepare("BEGIN IMMEDIATE");
    this.#update = this.#db.prepare("UPDATE records SET held = ?, body = ? WHERE id = ?");
    this.#commit = this.#db.prepare("COMMIT");
  }

  write(id: string, held: 0 | 1, body: string): void {
    this.#begin.run();
    this.#update.run(held, body, id);
    this.#commit.run();
  }

  close(): void {
    this.#db.close();
  }
}
