/**
 * The tables, as a list of migrations. `meta.version` counts the migrations that a schema has had.
 *
 * - A migration only ever sees a schema of the version before it, and runs in the transaction that raises the version.
 *   Processes that open the store at once wait for each other at an advisory lock.
 * - `meta.min_reader` is the lowest version whose code can use the schema. A migration that older code can live with (a new
 *   function, a column with a default) leaves it unchanged, so that a rolling upgrade and a downgrade are possible.
 * - A function that older code calls is never changed in its arguments or results; a new one gets another name.
 * - `meta.cluster` names the server, database and table that the rows were written in. Rows of a dump that was restored
 *   elsewhere begin a new epoch.
 */

import { SandlotError } from "@sandlot/contract";
import { createCommitFunction } from "./commit-function.ts";
import type { Connection } from "./connection.ts";
import { createFunctions } from "./functions.ts";

/** The id of the lock of migrations, which is one for all schemas of a database: two may be created at the same time. */
const MIGRATION_LOCK = 0x53_4c_6f_74;
/** A migration may rewrite a table. It is waited for once, at open. */
const MIGRATION_TIMEOUT_MS = 60_000;

const MIGRATIONS: readonly ((schema: string) => string)[] = [
  (schema) => `
CREATE TABLE "${schema}".meta (
  one integer PRIMARY KEY CHECK (one = 1), version integer NOT NULL, min_reader integer NOT NULL, epoch text NOT NULL,
  cluster text NOT NULL, incarnation text NOT NULL, rows_file oid NOT NULL, purged_xid xid8 NOT NULL
);
-- Room in each page for the next version of its rows.
CREATE TABLE "${schema}".rows (key text COLLATE "C" PRIMARY KEY, seq bigint NOT NULL, body text)
  WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE "${schema}".commits (
  id text COLLATE "C" PRIMARY KEY, seq bigint NOT NULL, at bigint NOT NULL, xid xid8 NOT NULL, keys text[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.1);
CREATE INDEX commits_by_xid ON "${schema}".commits (xid);
-- Commits are fewer than microseconds, so the present microsecond is ahead of every number ever given.
CREATE SEQUENCE "${schema}".seq AS bigint;
SELECT setval('"${schema}".seq', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
${createFunctions(schema)}`,
  // Commits can be joined. Version 1 had `commit_rows` only.
  createCommitFunction,
];

export const SCHEMA_VERSION = MIGRATIONS.length;

/** What `meta` of a schema says; `null` where the schema or its tables do not exist. */
export async function schemaVersion(
  connection: Connection,
  schema: string,
): Promise<{ readonly version: number; readonly minReader: number } | null> {
  // A query of the catalogue, because `to_regclass` may answer from a cache that is older than the lock of migrations.
  const [table] = await connection.query(
    "SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1 AND relname = 'meta'",
    [schema],
  );
  if (table === undefined) return null;
  const [meta] = await connection.query<{ version: number; min_reader: number }>(
    `SELECT version, min_reader FROM "${schema}".meta`,
  );
  return meta === undefined ? null : { version: meta.version, minReader: meta.min_reader };
}

/** Creates the tables or brings them up to date. Rejects with `store_corrupt` where a later version has changed them. */
export async function migrate(
  connection: Connection,
  schema: string,
  cluster: string,
  epoch: string,
  target: number = SCHEMA_VERSION,
): Promise<void> {
  const found = await schemaVersion(connection, schema);
  if (found !== null && found.version >= target) return requireReadable(found, schema);
  await connection.query("BEGIN");
  try {
    await connection.query(`SET LOCAL statement_timeout = ${MIGRATION_TIMEOUT_MS}`);
    await connection.query("SELECT pg_advisory_xact_lock($1)", [MIGRATION_LOCK]);
    // Another process may have done it meanwhile.
    const present = await schemaVersion(connection, schema);
    if (present === null) await createSchema(connection, schema);
    const version = present?.version ?? 0;
    for (const migration of MIGRATIONS.slice(version, target)) await connection.query(migration(schema));
    if (present === null) await insertMeta(connection, schema, cluster, epoch);
    if (version < target) await connection.query(`UPDATE "${schema}".meta SET version = $1`, [target]);
    await connection.query("COMMIT");
    if (present !== null) requireReadable(present, schema);
  } catch (error) {
    await connection.query("ROLLBACK").catch(() => {}); // The connection is gone, and its transaction with it.
    throw error;
  }
}

/** A schema that an administrator made for this role needs no right to make one. */
async function createSchema(connection: Connection, schema: string): Promise<void> {
  const [found] = await connection.query("SELECT FROM pg_namespace WHERE nspname = $1", [schema]);
  if (found === undefined) await connection.query(`CREATE SCHEMA "${schema}"`);
}

async function insertMeta(connection: Connection, schema: string, cluster: string, epoch: string): Promise<void> {
  const sql = `INSERT INTO "${schema}".meta (one, version, min_reader, epoch, cluster, incarnation, rows_file, purged_xid)
    VALUES (1, 0, 1, $1, $2 || '.' || to_regclass($3)::oid, "${schema}".incarnation(), pg_relation_filenode($3), '0')`;
  await connection.query(sql, [epoch, cluster, `"${schema}".rows`]);
}

function requireReadable({ version, minReader }: { version: number; minReader: number }, schema: string): void {
  if (minReader <= SCHEMA_VERSION) return;
  const problem =
    `a later version of sandlot has changed it (version ${version}; this one knows ${SCHEMA_VERSION}); ` +
    "use that version, or another store.schema";
  throw new SandlotError("store_corrupt", { path: `schema ${schema}`, problem });
}
