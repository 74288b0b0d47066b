/** The checks of `sandlot doctor` for a PostgreSQL store: they read, and create nothing. */

import type { Finding } from "../../backend/doctor/finding.ts";
import { systemWorld } from "../../world/system-world.ts";
import type { World } from "../../world/world.ts";
import { connectUnchecked, refusalOf, type ServerFacts } from "./connect.ts";
import { type Connection, ServerFailure } from "./connection.ts";
import { promiseOf } from "./postgres-row-server.ts";
import { SCHEMA_VERSION, schemaVersion } from "./schema.ts";
import { isSocket, type PostgresSettings, placeOf } from "./settings.ts";

/** A commit waits for the disk as well, so this is the least that each step costs. */
const SLOW_MS = 20;
/** Instances doubt themselves when their clock and the server's move apart by more than a second. */
const CLOCK_DIFFERENCE_MAX_MS = 1_000;
const ROUND_TRIPS = 5;
/** Longer than any transaction of ours. Commits are purged after ten minutes, so the tables have hardly grown by then. */
const TRANSACTION_MAX_MS = 60_000;
/** More rows than a fleet of this size has: purging has stopped, or vacuum has. */
const SIZE_MAX_BYTES = 4 * 1024 ** 3;

export async function postgresFindings(
  settings: PostgresSettings,
  world: World = systemWorld(),
): Promise<readonly Finding[]> {
  const late = new AbortController();
  const timer = world.timer(settings.timeoutMs * 2, () => late.abort(), { background: true });
  const detail = `postgres at ${placeOf(settings)}, database ${settings.database}, schema ${settings.schema}`;
  try {
    const { connection, facts } = await connectUnchecked(settings, late.signal);
    try {
      const latencyMs = await latencyOf(connection, world, late.signal);
      return [
        { name: "store", status: "ok", detail },
        serverFinding(facts, settings),
        await rightsFinding(connection, settings, late.signal),
        latencyFinding(latencyMs),
        clockFinding((await clockOf(connection, late.signal)) - world.wallMs()),
        replicaFinding(facts),
        await orphanFinding(connection, facts, settings, late.signal),
        encryptionFinding(settings),
        ...(await sizeFindings(connection, settings, late.signal)),
        await transactionFinding(connection, settings, late.signal),
      ];
    } finally {
      connection.destroy();
    }
  } catch (error) {
    if (!(error instanceof ServerFailure)) throw error;
    const [what = "", ...how] = error.failure.problem.split("; ");
    return [
      { name: "store", status: "fail", detail: `${detail}: ${what}`, fix: how.join("; ") || "see the server's log" },
    ];
  } finally {
    timer.cancel();
  }
}

function serverFinding(facts: ServerFacts, settings: PostgresSettings): Finding {
  const refusal = refusalOf(facts, placeOf(settings));
  const detail = `PostgreSQL ${facts.versionText}, fsync, full_page_writes and synchronous_commit = ${facts.synchronousCommit}`;
  if (refusal === null) return { name: "store server", status: "ok", detail };
  const [what = "", ...how] = refusal.split("; ");
  return { name: "store server", status: "fail", detail: what, fix: how.join("; ") };
}

async function rightsFinding(
  connection: Connection,
  { schema, user, database }: PostgresSettings,
  signal: AbortSignal,
) {
  const name = "store rights";
  const [rights] = await connection.query<{ owns: boolean | null; creates: boolean; uses: boolean | null }>(
    `SELECT has_database_privilege(current_database(), 'CREATE') AS creates,
      (SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = $1) AS owns,
      (SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = $1) AS uses`,
    [schema],
    { signal },
  );
  const fix = `as an administrator: psql ${database} -c 'CREATE SCHEMA IF NOT EXISTS "${schema}" AUTHORIZATION "${user}"'`;
  if (rights?.owns == null) {
    if (rights?.creates === true) return ok(name, `${user} will create the schema ${schema} at first use`);
    return fail(name, `the schema ${schema} does not exist, and ${user} may not create it`, fix);
  }
  if (rights.uses !== true) return fail(name, `${user} may not use the schema ${schema}`, fix);
  const found = await schemaVersion(connection, schema);
  if (found !== null && found.minReader > SCHEMA_VERSION)
    return fail(name, `a later version of sandlot has changed the schema ${schema}`, "use that version of sandlot");
  if (rights.owns) return ok(name, `${user} owns the schema ${schema}`);
  const owner = `as an administrator: psql ${database} -c 'ALTER SCHEMA "${schema}" OWNER TO "${user}"'`;
  return warn(name, `${user} uses the schema ${schema} of another role, and cannot upgrade its tables`, owner);
}

async function latencyOf(connection: Connection, world: World, signal: AbortSignal): Promise<number> {
  const times: number[] = [];
  for (let n = 0; n < ROUND_TRIPS; n += 1) {
    const begunAt = world.monotonicMs();
    await connection.query("SELECT 1", [], { signal });
    times.push(world.monotonicMs() - begunAt);
  }
  return Math.min(...times);
}

async function clockOf(connection: Connection, signal: AbortSignal): Promise<number> {
  const [row] = await connection.query<{ now: string }>(
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now",
    [],
    { signal },
  );
  return Number(row?.now);
}

function latencyFinding(ms: number): Finding {
  const detail = `a round trip takes ${ms.toFixed(1)} ms`;
  if (ms < SLOW_MS) return ok("store latency", detail);
  return warn("store latency", detail, "run sandlot near the database: every acquire waits for a round trip or two");
}

function clockFinding(differenceMs: number): Finding {
  const detail = `the server's clock differs by ${Math.round(Math.abs(differenceMs))} ms`;
  if (Math.abs(differenceMs) < CLOCK_DIFFERENCE_MAX_MS) return ok("store clock", detail);
  return warn("store clock", detail, "synchronise both machines: timedatectl set-ntp true");
}

function replicaFinding(facts: ServerFacts): Finding {
  const { replicaCount, synchronousStandbys } = facts;
  const name = "store replicas";
  if (promiseOf(facts) === "linearizable")
    return ok(name, synchronousStandbys === "" ? "none; one server" : `${synchronousStandbys} confirm every commit`);
  const detail = `${replicaCount} follow the server without confirming commits, so a failover can lose the last ones (it is noticed)`;
  return warn(name, detail, "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; SELECT pg_reload_conf();");
}

/**
 * A commit that waits for a replica holds its locks, also when its gateway is gone. Other gateways end it, where they may:
 * this role has to be able to cancel, and to see what the other roles that use the schema do.
 */
async function orphanFinding(
  connection: Connection,
  { synchronousStandbys }: ServerFacts,
  { schema, user, database }: PostgresSettings,
  signal: AbortSignal,
): Promise<Finding> {
  const name = "store orphans";
  if (synchronousStandbys === "") return ok(name, "no commit waits for a replica");
  const [found] = await connection.query<{ may: boolean; others: readonly string[] | null }>(
    `SELECT has_function_privilege('pg_catalog.pg_cancel_backend(integer)', 'EXECUTE') AS may,
      (SELECT array_agg(rolname::text ORDER BY rolname) FROM pg_roles
        WHERE rolcanlogin AND NOT rolsuper AND NOT pg_has_role(oid, 'USAGE')
          AND has_schema_privilege(oid, (SELECT oid FROM pg_namespace WHERE nspname = $1), 'USAGE')) AS others`,
    [schema],
    { signal },
  );
  const harm =
    "a commit whose gateway has died while it waited for a replica holds up others until the replica is back";
  const grant = "GRANT EXECUTE ON FUNCTION pg_catalog.pg_cancel_backend(integer) TO";
  if (found?.may !== true)
    return warn(
      name,
      `${user} may not cancel: ${harm}`,
      `as an administrator: psql ${database} -c '${grant} "${user}"'`,
    );
  const [other] = found.others ?? [];
  if (other === undefined) return ok(name, `${user} ends the commits of gateways that have died`);
  const fix = `use one role for all gateways; or as an administrator: psql ${database} -c 'GRANT "${plain(other)}" TO "${user}"'`;
  return warn(name, `${user} cannot end the commits of ${plain(other)}, which uses the schema too: ${harm}`, fix);
}

function encryptionFinding({ host, tls }: PostgresSettings): Finding {
  const isLocal = isSocket(host) || ["127.0.0.1", "::1", "localhost"].includes(host);
  if (tls === null && isLocal) return ok("store encryption", "none, on this machine");
  if (tls === null)
    return warn("store encryption", "none: others on the network can read tokens", "set store.tls.mode to verify-full");
  if (tls.mode === "verify-full") return ok("store encryption", "TLS, certificate and name are checked");
  const fix = "set store.tls.mode to verify-full and store.tls.caFile to the authority";
  return warn("store encryption", `TLS with ${tls.mode}: another server could take its place`, fix);
}

async function sizeFindings(connection: Connection, { schema }: PostgresSettings, signal: AbortSignal) {
  const [size] = await connection.query<{ bytes: string | null; dead: string | null }>(
    `SELECT sum(pg_total_relation_size(pg_class.oid)) AS bytes FROM pg_class
      JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1 AND relkind = 'r'`,
    [schema],
    { signal },
  );
  if (size?.bytes == null) return [];
  const bytes = Number(size.bytes);
  const detail = `${(bytes / 1024 ** 2).toFixed(1)} MiB`;
  if (bytes < SIZE_MAX_BYTES) return [ok("store size", detail)];
  const fix = `see why autovacuum does not keep up: SELECT * FROM pg_stat_user_tables WHERE schemaname = '${schema}'`;
  return [warn("store size", detail, fix)];
}

interface OldestTransaction {
  readonly pid: number | null;
  readonly gid: string | null;
  readonly program: string | null;
  readonly database: string | null;
  readonly age_ms: number | null;
}

/**
 * A transaction that has written, in any database of the server, keeps old commits from being purged. The server tells
 * its age only to its own role; our commits since then tell it too.
 */
async function transactionFinding(
  connection: Connection,
  { schema }: PostgresSettings,
  signal: AbortSignal,
): Promise<Finding> {
  const name = "store transactions";
  const [log] = await connection.query<{ readable: boolean }>(
    `SELECT has_schema_privilege(pg_namespace.oid, 'USAGE') AND has_table_privilege(pg_class.oid, 'SELECT') AS readable
      FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1 AND relname = 'commits'`,
    [schema],
    { signal },
  );
  const firstCommit = log?.readable
    ? `(SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint - at FROM "${schema}".commits
        WHERE xid > oldest.xid ORDER BY xid LIMIT 1)`
    : "NULL";
  const [oldest] = await connection.query<OldestTransaction>(
    `SELECT activity.pid, prepared.gid, activity.application_name AS program,
      coalesce(activity.datname, prepared.database) AS database,
      greatest(extract(epoch FROM clock_timestamp() - coalesce(activity.xact_start, prepared.prepared)) * 1000,
        ${firstCommit})::float8 AS age_ms
    FROM (SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xid) AS oldest
    LEFT JOIN pg_stat_activity AS activity ON activity.backend_xid = oldest.xid::xid
    LEFT JOIN pg_prepared_xacts AS prepared ON prepared.transaction = oldest.xid::xid
    WHERE activity.pid IS NOT NULL OR prepared.gid IS NOT NULL`,
    [],
    { signal },
  );
  const ageMs = oldest?.age_ms ?? 0;
  if (oldest === undefined || ageMs < TRANSACTION_MAX_MS) return ok(name, "none that writes has been open for long");
  const seconds = `${Math.round(ageMs / 1_000)} s`;
  const growth = "old commits are not purged meanwhile, and the tables grow";
  if (oldest.gid !== null) {
    const gid = plain(oldest.gid);
    const detail = `the prepared transaction ${gid} in database ${plain(oldest.database)} is ${seconds} old; ${growth}`;
    return warn(name, detail, `there: ROLLBACK PREPARED '${gid}'; (or COMMIT PREPARED)`);
  }
  const about = `${plain(oldest.program) || "a program"} in database ${plain(oldest.database)}`;
  const detail = `the transaction of process ${oldest.pid} (${about}) writes for at least ${seconds}; ${growth}`;
  return warn(name, detail, `end it: SELECT pg_terminate_backend(${oldest.pid});`);
}

/** Names that other programs chose. */
function plain(text: string | null): string {
  return (text ?? "").replaceAll(/[^\x20-\x26\x28-\x7e]/g, "?").slice(0, 80);
}

const ok = (name: string, detail: string): Finding => ({ name, status: "ok", detail });
const warn = (name: string, detail: string, fix: string): Finding => ({ name, status: "warn", detail, fix });
const fail = (name: string, detail: string, fix: string): Finding => ({ name, status: "fail", detail, fix });
