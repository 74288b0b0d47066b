/**
 * Connections that are ready for rows: with timeouts, TLS and the password of the settings, to a server that was checked.
 *
 * - The settings of the session make no difference visible, only sure: isolation, plans by index, no just-in-time
 *   compilation. The driver's own environment variables (`PGHOST`, `PGPASSWORD`, …) and `~/.pgpass` are not used.
 * - Every connection is checked, not only the first: a name can lead to another server after a failover.
 */

import type { ClientConfig } from "pg";
import { type Connection, type ConnectionEvents, openConnection, ServerFailure } from "./connection.ts";
import { unsafeSetting } from "./problem.ts";
import { readPassword, readTls } from "./secrets.ts";
import { type PostgresSettings, placeOf } from "./settings.ts";

/** The oldest version that the tests run on. */
const VERSION_MIN = 15;
/** How long a silent connection may be dead before the system looks. */
const KEEP_ALIVE_MS = 10_000;

/** What a connection found out about its server. */
export interface ServerFacts {
  readonly version: number;
  readonly versionText: string;
  readonly isStandby: boolean;
  readonly isReadOnly: boolean;
  readonly encoding: string;
  readonly unsafe: readonly string[];
  /** The server's cluster and this database. The id of the table of rows follows in `meta.cluster`. */
  readonly cluster: string;
  readonly synchronousCommit: string;
  readonly synchronousStandbys: string;
  readonly replicaCount: number;
  readonly nowMs: number;
}

export interface CheckedConnection {
  readonly connection: Connection;
  readonly facts: ServerFacts;
}

/** Rejects with a `ServerFailure` when the server cannot be reached or must not be used. */
export async function connect(
  settings: PostgresSettings,
  signal: AbortSignal,
  events?: ConnectionEvents,
): Promise<CheckedConnection> {
  const place = placeOf(settings);
  const connection = await openConnection(clientConfig(settings), place, signal, events);
  try {
    const facts = await factsOf(connection, signal);
    const refusal = refusalOf(facts, place);
    if (refusal !== null) throw new ServerFailure({ problem: refusal, code: null });
    return { connection, facts };
  } catch (error) {
    connection.destroy();
    throw error;
  }
}

/** Opens a connection without checking the server, for `sandlot doctor`. */
export async function connectUnchecked(settings: PostgresSettings, signal: AbortSignal): Promise<CheckedConnection> {
  const connection = await openConnection(clientConfig(settings), placeOf(settings), signal);
  try {
    return { connection, facts: await factsOf(connection, signal) };
  } catch (error) {
    connection.destroy();
    throw error;
  }
}

/** Why a store must not be on this server; `null` when it may. */
export function refusalOf(facts: ServerFacts, place: string): string | null {
  const { version, versionText, isStandby, isReadOnly, encoding, unsafe } = facts;
  if (version < VERSION_MIN)
    return `the server at ${place} is PostgreSQL ${versionText}; use ${VERSION_MIN} or newer (pg_upgrade, or another server)`;
  if (isStandby)
    return `the server at ${place} is a standby; connect to the primary, or promote this one with: pg_ctl promote`;
  if (isReadOnly) {
    const command = "ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf();";
    return (
      `the server at ${place} has default_transaction_read_only = on; run there: ${command} ` +
      "(or ALTER ROLE … / ALTER DATABASE … RESET default_transaction_read_only)"
    );
  }
  if (encoding !== "UTF8")
    return `the database has server_encoding = ${encoding}; make another: createdb --encoding=UTF8 --template=template0 <name>`;
  const [setting] = unsafe;
  return setting === undefined ? null : unsafeSetting(place, setting);
}

async function factsOf(connection: Connection, signal: AbortSignal): Promise<ServerFacts> {
  const [row] = await connection.query<Record<string, string | boolean>>(
    `SELECT current_setting('server_version_num')::integer / 10000 AS version, current_setting('server_version') AS text,
      pg_is_in_recovery() AS standby, current_setting('transaction_read_only') = 'on' AS read_only,
      current_setting('server_encoding') AS encoding, current_setting('fsync') AS fsync,
      current_setting('full_page_writes') AS full_page_writes, current_setting('synchronous_commit') AS synchronous_commit,
      current_setting('synchronous_standby_names') AS standbys,
      (SELECT count(*) FROM pg_stat_replication) AS replicas,
      (SELECT system_identifier FROM pg_control_system()) || '.' ||
        (SELECT oid FROM pg_database WHERE datname = current_database()) AS cluster,
      (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now,
      CASE WHEN version() !~* 'mingw|visual c' THEN set_config('client_connection_check_interval', '1s', false) END`,
    [],
    { signal },
  );
  const { version, text, standby, read_only, encoding, standbys, replicas, cluster, now, ...settings } = row ?? {};
  return {
    version: Number(version),
    // Without the name of a distribution's package.
    versionText: String(text).split(" ")[0] ?? "",
    isStandby: standby === true,
    isReadOnly: read_only === true,
    encoding: String(encoding),
    unsafe: ["fsync", "full_page_writes", "synchronous_commit"].filter((name) => settings[name] === "off"),
    cluster: String(cluster),
    synchronousCommit: String(settings.synchronous_commit),
    synchronousStandbys: String(standbys),
    replicaCount: Number(replicas),
    nowMs: Number(now),
  };
}

function clientConfig(settings: PostgresSettings): ClientConfig {
  const { host, port, database, user, timeoutMs } = settings;
  return {
    host,
    port,
    database,
    user,
    password: () => readPassword(settings.passwordFile),
    ssl: readTls(settings.tls),
    sslnegotiation: "postgres",
    enableChannelBinding: true,
    application_name: "sandlot",
    connectionTimeoutMillis: timeoutMs,
    statement_timeout: timeoutMs,
    // The signal of a call ends it first. This one is for calls without.
    query_timeout: timeoutMs * 2,
    idle_in_transaction_session_timeout: timeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    // Tables that have just grown have no statistics: an index is never much worse here, and a scan can be.
    options: [
      "search_path=pg_catalog",
      "default_transaction_isolation=read\\ committed",
      "default_transaction_deferrable=off",
      "client_encoding=UTF8",
      // A gateway whose host is gone leaves no process of the server behind for longer than a minute.
      "tcp_keepalives_idle=30",
      "tcp_keepalives_interval=10",
      "tcp_keepalives_count=3",
      "jit=off",
      "plan_cache_mode=force_generic_plan",
      "enable_seqscan=off",
      "enable_hashjoin=off",
      "enable_mergejoin=off",
    ]
      .map((setting) => `-c ${setting}`)
      .join(" "),
  };
}
