/**
 * The schema, as a list of migrations. `user_version` counts the migrations that a file has had.
 *
 * - A record is one row: its JSON, and columns for lookups. Reads use the JSON; the same statement writes the columns.
 * - `leases` is an index of the JSON: which record has a lease.
 * - A migration only ever sees files of the version before it, and runs in the transaction that raises `user_version`.
 * - `meta.min_reader` is the lowest version whose code can use the file. A migration that older code can live with (a
 *   new index, a column with a default) leaves it unchanged, so that a rolling upgrade and a downgrade are possible.
 */

import type { DatabaseSync } from "node:sqlite";

/** "SLot": tells our files from those of other programs. */
export const APPLICATION_ID = 0x534c6f74;

const MIGRATIONS: readonly string[] = [
  `
  CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1), epoch TEXT NOT NULL, recovering INTEGER NOT NULL, generation INTEGER NOT NULL
  ) STRICT;
  CREATE TABLE sessions (
    instance TEXT PRIMARY KEY, beat INTEGER NOT NULL, last_beat_at INTEGER NOT NULL, identity TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE records (
    sandbox_id TEXT PRIMARY KEY, user TEXT, thread TEXT, state TEXT NOT NULL, blueprint_hash TEXT NOT NULL, body TEXT NOT NULL
  ) STRICT;
  -- One sandbox per thread. Rows without a thread do not collide: SQLite counts NULLs as distinct.
  CREATE UNIQUE INDEX records_by_thread ON records (user, thread);
  CREATE INDEX records_blank ON records (blueprint_hash) WHERE state = 'ready' AND thread IS NULL;
  CREATE INDEX records_acting ON records (state) WHERE state <> 'ready';
  CREATE TABLE holders (instance TEXT, sandbox_id TEXT, PRIMARY KEY (instance, sandbox_id)) STRICT, WITHOUT ROWID;
  CREATE TABLE leases (lease_id TEXT PRIMARY KEY, sandbox_id TEXT NOT NULL) STRICT, WITHOUT ROWID;
  CREATE TABLE obituaries (ordinal INTEGER PRIMARY KEY, sandbox_id TEXT NOT NULL UNIQUE, body TEXT NOT NULL) STRICT;
  `,
  // A table of holders would double the pages that a hold writes. One column in the row, which is written anyway, finds
  // the parked and the held records without parsing every record.
  `
  DROP TABLE holders;
  ALTER TABLE records ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
  UPDATE records SET held = 1
    WHERE EXISTS (SELECT 1 FROM json_each(body, '$.holders')) OR EXISTS (SELECT 1 FROM json_each(body, '$.leases'));
  `,
  // An older record does not show whether its sandbox was used. Most were.
  "UPDATE records SET body = json_set(body, '$.arrival', NULL)",
  // The store's clock (`store-clock.ts`), and who can read the file. Code before this version reads no newer file.
  `
  ALTER TABLE meta ADD COLUMN min_reader INTEGER NOT NULL DEFAULT 4;
  ALTER TABLE meta ADD COLUMN clock_boot TEXT NOT NULL DEFAULT '';
  ALTER TABLE meta ADD COLUMN clock_base INTEGER NOT NULL DEFAULT 0;
  `,
  // The mark of a move to another store, as JSON. While there is one, `min_reader` keeps out code that does not know it.
  "ALTER TABLE meta ADD COLUMN transfer TEXT",
];

/** The lowest version whose code can use a file with a mark, and without. */
export const READERS = { marked: 5, unmarked: 4 } as const;

export const SCHEMA_VERSION = MIGRATIONS.length;

/**
 * Migrates a file to `target`. Call it inside a write transaction. `newer`: a later version of this program has
 * migrated it, and this one can use the file; `unreadable`: it cannot.
 */
export function migrate(db: DatabaseSync, target: number = SCHEMA_VERSION): "current" | "newer" | "unreadable" {
  const version = userVersion(db);
  if (version > SCHEMA_VERSION) return isReadable(db) ? "newer" : "unreadable";
  for (const sql of MIGRATIONS.slice(version, target)) db.exec(sql);
  if (version < target) db.exec(`PRAGMA user_version = ${target}`);
  return "current";
}

/** Whether this program can use the file, whichever version migrated it. */
export function isReadable(db: DatabaseSync): boolean {
  if (userVersion(db) <= SCHEMA_VERSION) return true;
  const reader = db.prepare("SELECT min_reader FROM meta").get()?.min_reader;
  return typeof reader === "number" && reader <= SCHEMA_VERSION;
}

/** The SQL of all tables and indexes. */
export function tablesOf(db: DatabaseSync): string {
  const rows = db.prepare("SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name").all();
  return JSON.stringify(rows);
}

function userVersion(db: DatabaseSync): number {
  return Number(db.prepare("PRAGMA user_version").get()?.user_version);
}
