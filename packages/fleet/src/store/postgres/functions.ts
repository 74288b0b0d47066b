/**
 * The functions that the server runs, so that a commit is one round trip.
 *
 * Locks
 * - Every commit first takes the lock of the epoch, shared. A new epoch takes it alone, so no commit of the earlier epoch
 *   is under way when its rows go.
 * - A commit then locks each of its keys by hash, also those of rows that do not exist: shared where it reads, alone where
 *   it writes, in the order of the keys. So commits do not wait for each other in a circle, and commits that read the same
 *   row run at the same time. (Two keys with the same hash could make a circle. The server would end one of the commits,
 *   and the client would repeat it.)
 * - These are advisory locks: they live in the server's memory, cost no write, and end with the transaction. All writes of
 *   rows go through here, so no other lock is needed.
 * - The server's table of locks is bounded. A commit of more than `LOCKED_KEYS_MAX` keys takes the epoch's lock alone.
 *
 * Snapshots
 * - A statement of a function sees what was committed before the statement began. So the checks come after the locks.
 *   The connection asks for READ COMMITTED (`connect.ts`).
 * - Each commit is remembered with its id, the id of its transaction and the keys that it wrote. A scan of changes reads
 *   these. It begins with the snapshot of the scan before, and shows the transactions that were not visible there: those
 *   that were under way, and all later ones. So it misses none and repeats none, however long another program's
 *   transaction stays open.
 *
 * Writes
 * - A row has no index but its key, so that a new version stays on the page of the old one and touches no index.
 * - A deletion marker is purged together with the commit that made it.
 *
 * All functions are PL/pgSQL, which keeps the plans of its statements for a connection. SQL functions are planned in every
 * call.
 *
 * An incarnation is a period in which sequence numbers and transaction ids only grow: one run of one server on one
 * timeline, with one file of rows. A failover or a restored copy begins another one, in which lost numbers would come
 * again. So every new connection, and a commit that finds another file, first moves the sequence to the present
 * microsecond, and scans from before begin anew. A connection does not outlive the run of its server.
 */

/** SQLSTATE of a refused setting. Its message is the name of the setting. */
export const UNSAFE_SETTING = "SL001";

export const NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

export function keySeedOf(schema: string): string {
  return `hashtextextended('${schema.replaceAll("'", "''")}', 0)`;
}

export function epochLockOf(schema: string): string {
  return `hashtextextended('${schema.replaceAll("'", "''")}', 1)`;
}

export function createFunctions(schema: string): string {
  const name = schema.replaceAll("'", "''");
  const epochLock = epochLockOf(schema);
  const incarnation = `left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
    || '.' || (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
    || '.' || pg_relation_filenode('"${schema}".rows')`;
  return `
CREATE FUNCTION "${schema}".incarnation() RETURNS text LANGUAGE plpgsql AS $body$
BEGIN
  RETURN ${incarnation};
END
$body$;

-- Moves the sequence ahead of every number that an earlier incarnation can have given.
CREATE FUNCTION "${schema}".begin_incarnation() RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
  v_now bigint := extract(epoch FROM clock_timestamp()) * 1000000;
BEGIN
  UPDATE "${schema}".meta SET incarnation = "${schema}".incarnation(), rows_file = pg_relation_filenode('"${schema}".rows')
    WHERE incarnation <> "${schema}".incarnation();
  IF FOUND AND nextval('"${schema}".seq') < v_now THEN
    PERFORM setval('"${schema}".seq', v_now);
  END IF;
END
$body$;

-- Refuses settings with which a confirmed commit can be lost.
CREATE FUNCTION "${schema}".check_settings(p_is_durable boolean) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
  v_setting text;
BEGIN
  FOREACH v_setting IN ARRAY ARRAY['fsync', 'full_page_writes', 'synchronous_commit'] LOOP
    IF current_setting(v_setting) = 'off' THEN
      RAISE EXCEPTION '%', v_setting USING ERRCODE = '${UNSAFE_SETTING}';
    END IF;
  END LOOP;
  IF p_is_durable AND current_setting('synchronous_commit') = 'local' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END
$body$;

CREATE FUNCTION "${schema}".read_rows(p_keys text[]) RETURNS json LANGUAGE plpgsql AS $body$
BEGIN
  RETURN (
    SELECT json_build_object('now', ${NOW_MS}, 'epoch', meta.epoch, 'rows', (
      SELECT json_agg(json_build_object('key', wanted.key, 'seq', coalesce(rows.seq, 0), 'body', rows.body) ORDER BY place)
      FROM unnest(p_keys) WITH ORDINALITY AS wanted(key, place) LEFT JOIN "${schema}".rows ON rows.key = wanted.key
    )) FROM "${schema}".meta
  );
END
$body$;

-- Every row that exists, in the order of keys. 'snapshot': where a scan of changes goes on afterwards.
CREATE FUNCTION "${schema}".scan_all(p_after text, p_limit integer) RETURNS json LANGUAGE plpgsql AS $body$
DECLARE
  v_incarnation text := ${incarnation};
BEGIN
  RETURN (
    SELECT json_build_object('now', ${NOW_MS}, 'epoch', meta.epoch, 'incarnation', v_incarnation,
      'snapshot', pg_current_snapshot()::text, 'purged', meta.purged_xid::text, 'rows', (
        SELECT json_agg(json_build_array(page.key, page.seq, page.body, '0')) FROM (
          SELECT key, seq, body FROM "${schema}".rows WHERE key > p_after AND body IS NOT NULL ORDER BY key LIMIT p_limit
        ) AS page
      )) FROM "${schema}".meta
  );
END
$body$;

-- Every row that was written by a transaction which the snapshot p_since does not show, after the place (p_xid, p_after),
-- also deleted rows. A row that was written again comes with its last write.
CREATE FUNCTION "${schema}".scan_changes(p_since text, p_xid text, p_after text, p_limit integer) RETURNS json
LANGUAGE plpgsql AS $body$
DECLARE
  v_incarnation text := ${incarnation};
  v_since pg_snapshot := p_since::pg_snapshot;
  v_under_way xid8[] := ARRAY(SELECT pg_snapshot_xip(v_since));
  v_from xid8 := greatest(pg_snapshot_xmax(v_since), p_xid::xid8);
BEGIN
  RETURN (
    SELECT json_build_object('now', ${NOW_MS}, 'epoch', meta.epoch, 'incarnation', v_incarnation,
      'snapshot', pg_current_snapshot()::text, 'purged', meta.purged_xid::text, 'rows', (
        SELECT json_agg(json_build_array(page.key, page.seq, page.body, page.xid::text)) FROM (
          -- Two searches by the index. One with OR would read every commit since the oldest open transaction.
          (${changesWhere(schema, "commits.xid = ANY (v_under_way)")})
          UNION ALL
          (${changesWhere(schema, "commits.xid >= v_from")})
          ORDER BY xid, key LIMIT p_limit
        ) AS page
      )) FROM "${schema}".meta
  );
END
$body$;

-- Drops the rows of an epoch, except those of p_kept. The caller has the lock of the epoch alone.
CREATE FUNCTION "${schema}".replace_epoch(p_next text, p_kept text[]) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
  PERFORM "${schema}".begin_incarnation();
  DELETE FROM "${schema}".rows
    WHERE NOT EXISTS (SELECT FROM unnest(p_kept) AS kept WHERE starts_with(key, kept || '/'));
  -- Cursors name their epoch, so scans begin anew. They show no commit of the former epoch: all of them ended before.
  UPDATE "${schema}".meta SET epoch = p_next;
END
$body$;

CREATE FUNCTION "${schema}".begin_epoch(p_known text, p_next text, p_kept text[]) RETURNS text
LANGUAGE plpgsql AS $body$
BEGIN
  PERFORM pg_advisory_xact_lock(${epochLock});
  IF (SELECT epoch FROM "${schema}".meta) = p_known THEN
    PERFORM "${schema}".replace_epoch(p_next, p_kept);
  END IF;
  RETURN (SELECT epoch FROM "${schema}".meta);
END
$body$;

-- Rows that came from another cluster, by a dump, have transaction ids that mean nothing here, and are of an earlier time.
CREATE FUNCTION "${schema}".adopt_cluster(p_cluster text, p_next text, p_kept text[]) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
  PERFORM pg_advisory_xact_lock(${epochLock});
  IF (SELECT cluster FROM "${schema}".meta) <> p_cluster THEN
    PERFORM "${schema}".replace_epoch(p_next, p_kept);
    DELETE FROM "${schema}".commits;
    DELETE FROM "${schema}".rows WHERE body IS NULL;
    UPDATE "${schema}".meta SET cluster = p_cluster, purged_xid = '0';
  END IF;
END
$body$;

-- Forgets old commits and their deletion markers, at most p_limit. Returns whether more are left. What the next scan may
-- still need stays.
CREATE FUNCTION "${schema}".purge(p_kept_ms bigint, p_limit integer) RETURNS boolean LANGUAGE plpgsql AS $body$
DECLARE
  v_before bigint := ${NOW_MS} - p_kept_ms;
  v_gone record;
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtextextended('${name}', 2)) THEN
    RETURN false;
  END IF;
  WITH gone AS (
    DELETE FROM "${schema}".commits WHERE id = ANY (ARRAY(
      SELECT id FROM "${schema}".commits
      WHERE xid < pg_snapshot_xmin(pg_current_snapshot()) AND at < v_before
      ORDER BY xid LIMIT p_limit FOR UPDATE SKIP LOCKED
    )) RETURNING seq, xid, keys
  ), markers AS (
    DELETE FROM "${schema}".rows USING gone CROSS JOIN LATERAL unnest(gone.keys) AS written(key)
    WHERE rows.key = written.key AND rows.seq = gone.seq AND rows.body IS NULL
  )
  SELECT count(*) AS count, max(xid) AS xid INTO STRICT v_gone FROM gone;
  UPDATE "${schema}".meta SET purged_xid = v_gone.xid WHERE v_gone.xid > purged_xid;
  RETURN v_gone.count = p_limit;
END
$body$;
`;
}

function changesWhere(schema: string, which: string): string {
  return `SELECT written.key COLLATE "C" AS key, commits.seq, rows.body, commits.xid
          FROM "${schema}".commits CROSS JOIN LATERAL unnest(commits.keys) AS written(key)
          LEFT JOIN "${schema}".rows ON rows.key = written.key
          WHERE ${which} AND (commits.xid > p_xid::xid8 OR commits.xid = p_xid::xid8 AND written.key COLLATE "C" > p_after)
            AND coalesce(rows.seq, commits.seq) = commits.seq
          ORDER BY commits.xid, written.key COLLATE "C" LIMIT p_limit`;
}

/** The channel of a schema's notifications. */
export function topicChannel(schema: string): string {
  return `sandlot:${schema}`;
}
