/**
 * One open connection to the file, and transactions on it. Synchronous throughout: a transaction begins and ends
 * within one call, so none is ever held across an `await`.
 */

import type { DatabaseSync } from "node:sqlite";
import type { Epoch } from "@sandlot/contract";
import type { Tables } from "../tables.ts";
import { type FileIdentity, identify } from "./file.ts";
import { isReadable } from "./schema.ts";
import { SqliteTables } from "./sqlite-tables.ts";

/** The names of SQLite's files beside the database. */
const SIDE_FILES = ["-wal", "-shm"] as const;

export class Connection {
  readonly file: FileIdentity;
  /** The epoch of the file when it was opened. */
  readonly epoch: Epoch;
  readonly #db: DatabaseSync;
  readonly #tables: SqliteTables;
  readonly #sql: Readonly<Record<"begin" | "commit" | "rollback" | "dataVersion", ReturnType<DatabaseSync["prepare"]>>>;
  #isUnended = false;
  readonly #sideFiles: readonly { readonly path: string; readonly file: FileIdentity | null }[];

  /** `db` has been checked and migrated. From here on the connection closes it. */
  constructor(options: { db: DatabaseSync; path: string; file: FileIdentity; epoch: Epoch; now: () => number }) {
    const { db, path } = options;
    this.#db = db;
    this.file = options.file;
    this.epoch = options.epoch;
    this.#tables = new SqliteTables(db, options.now);
    this.#sql = {
      // Takes the write lock at once: a transaction that reads first could find too late that another wrote since.
      begin: db.prepare("BEGIN IMMEDIATE"),
      commit: db.prepare("COMMIT"),
      rollback: db.prepare("ROLLBACK"),
      dataVersion: db.prepare("PRAGMA data_version"),
    };
    this.#sql.dataVersion.setReturnArrays(true);
    this.#sideFiles = SIDE_FILES.map((suffix) => ({ path: path + suffix, file: identify(path + suffix) }));
  }

  transact<T>(access: "read" | "write", step: (tables: Tables) => T): T {
    if (this.#isUnended) this.#end();
    return access === "read" ? this.#read(step) : this.#write(step);
  }

  /** A reading step is one statement (a test checks every step), and one statement is a transaction by itself. */
  #read<T>(step: (tables: Tables) => T): T {
    this.#tables.validate(this.dataVersion());
    return step(this.#tables);
  }

  #write<T>(step: (tables: Tables) => T): T {
    this.#sql.begin.run();
    try {
      this.#tables.validate(this.dataVersion());
      const result = step(this.#tables);
      this.#sql.commit.run();
      return result;
    } catch (error) {
      this.#tables.forget();
      this.#rollback();
      throw error;
    }
  }

  /** The caller gets the first error. */
  #rollback(): void {
    this.#isUnended = true;
    try {
      this.#end();
    } catch {
      // Tried again before the next step: no step may read uncommitted rows.
    }
  }

  #end(): void {
    // Some errors end the transaction by themselves.
    if (this.#db.isTransaction) this.#sql.rollback.run();
    this.#isUnended = false;
  }

  /** Grows with the changes of this connection. */
  get changeCount(): number {
    return this.#tables.changeCount;
  }

  /** Changes when another connection has committed. */
  dataVersion(): unknown {
    return (this.#sql.dataVersion.get() as readonly unknown[] | undefined)?.[0];
  }

  isReadable(): boolean {
    return isReadable(this.#db);
  }

  /** The files beside the database that belong to this connection's file, whatever their present names. */
  sideFiles(): readonly { readonly path: string; readonly file: FileIdentity | null }[] {
    return this.#sideFiles;
  }

  close(): void {
    if (this.#db.isOpen) this.#db.close();
  }
}
