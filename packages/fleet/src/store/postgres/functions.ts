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
 * - Each row has the id of the transaction that wrote it. All transactions below `pg_snapshot_xmin` have ended and are
 *   visible. So a scan goes on from there the next time, and misses no commit that was under way.
 *
 * An incarnation is a period in which sequence numbers and transaction ids only grow: one run of one server on one
 * timeline, with one file of rows. A failover or a restored copy begins another one, in which lost numbers would come
 * again. So the first commit moves the sequence to the present microsecond, and scans from before begin anew.
 */

import { COMMITS_KEPT_MS } from "../rows/row-server.ts";

/** The server holds 64 locks for each of its connections by default. */
const LOCKED_KEYS_MAX = 64;
/** SQLSTATE of a refused setting. Its message is the name of the setting. */
export const UNSAFE_SETTING = "SL001";

export function createFunctions(schema: string): string {
  const name = schema.replaceAll("'", "''");
  const keySeed = `hashtextextended('${name}', 0)`;
  const epochLock = `hashtextextended('${name}', 1)`;
  const nowMs = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
  return `
CREATE FUNCTION "${schema}".incarnation() RETURNS text LANGUAGE sql STABLE AS $body$
  SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
    || '.' || (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
    || '.' || pg_relation_filenode('"${schema}".rows');
$body$;

-- Moves the sequence ahead of every number that an earlier incarnation can have given.
CREATE FUNCTION "${schema}".begin_incarnation() RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
  v_now bigint := extract(epoch FROM clock_timestamp()) * 1000000;
BEGIN
  UPDATE "${schema}".meta SET incarnation = "${schema}".incarnation() WHERE incarnation <> "${schema}".incarnation();
  IF FOUND AND nextval('"${schema}".seq') < v_now THEN
    PERFORM setval('"${schema}".seq', v_now);
  END IF;
END
$body$;

CREATE FUNCTION "${schema}".commit_rows(
  p_id text, p_epoch text, p_seen text[], p_seen_at bigint, p_not_after bigint,
  -- One element of each for every row that is read or written, in the order of the keys.
  p_keys text[], p_seqs bigint[], p_is_written boolean[], p_bodies text[],
  p_topics text, p_is_durable boolean,
  OUT o_kind text, OUT o_seq bigint, OUT o_now bigint, OUT o_epoch text, OUT o_rows json
) LANGUAGE plpgsql AS $body$
DECLARE
  v_hash bigint;
  v_meta record;
  v_done boolean;
BEGIN
  IF current_setting('fsync') = 'off' THEN
    RAISE EXCEPTION 'fsync' USING ERRCODE = '${UNSAFE_SETTING}';
  ELSIF current_setting('full_page_writes') = 'off' THEN
    RAISE EXCEPTION 'full_page_writes' USING ERRCODE = '${UNSAFE_SETTING}';
  ELSIF current_setting('synchronous_commit') = 'off' THEN
    RAISE EXCEPTION 'synchronous_commit' USING ERRCODE = '${UNSAFE_SETTING}';
  ELSIF p_is_durable AND current_setting('synchronous_commit') = 'local' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;

  -- Assignments, because PERFORM would run a query for each.
  IF cardinality(p_keys) > ${LOCKED_KEYS_MAX} THEN
    v_done := pg_advisory_xact_lock(${epochLock}) IS NULL;
  ELSE
    v_done := pg_advisory_xact_lock_shared(${epochLock}) IS NULL;
    FOR v_index IN 1 .. cardinality(p_keys) LOOP
      v_hash := hashtextextended(p_keys[v_index], ${keySeed});
      IF p_is_written[v_index] THEN
        v_done := pg_advisory_xact_lock(v_hash) IS NULL;
      ELSE
        v_done := pg_advisory_xact_lock_shared(v_hash) IS NULL;
      END IF;
    END LOOP;
  END IF;

  o_now := ${nowMs};
  SELECT meta.epoch, meta.incarnation <> "${schema}".incarnation() AS is_first,
    (SELECT commits.seq FROM "${schema}".commits WHERE commits.id = p_id) AS known_seq,
    EXISTS (
      SELECT FROM unnest(p_seen) AS seen
      WHERE NOT EXISTS (SELECT FROM "${schema}".commits WHERE commits.id = seen)
    ) AS has_lost,
    (
      SELECT json_agg(json_build_array(read.key, coalesce(rows.seq, 0), rows.body))
      FROM unnest(p_keys, p_seqs) AS read(key, seq) LEFT JOIN "${schema}".rows ON rows.key = read.key
      WHERE coalesce(rows.seq, 0) <> read.seq
    ) AS changed
    INTO STRICT v_meta FROM "${schema}".meta;
  IF v_meta.epoch <> p_epoch THEN
    o_kind := 'new-epoch';
    o_epoch := v_meta.epoch;
    RETURN;
  END IF;
  IF v_meta.known_seq IS NOT NULL THEN
    -- The first answer may not have waited for the replicas. A write waits for them, with all that came before it.
    UPDATE "${schema}".commits SET seq = seq WHERE id = p_id;
    o_kind := 'committed';
    o_seq := v_meta.known_seq;
    RETURN;
  END IF;
  IF v_meta.has_lost AND p_seen_at > o_now - ${COMMITS_KEPT_MS / 2} THEN
    o_kind := 'rewound';
    RETURN;
  END IF;
  IF o_now > p_not_after THEN
    o_kind := 'late';
    RETURN;
  END IF;
  IF v_meta.changed IS NOT NULL THEN
    o_kind := 'conflict';
    o_rows := v_meta.changed;
    RETURN;
  END IF;

  o_kind := 'committed';
  IF true = ANY (p_is_written) IS NOT TRUE THEN
    -- It only checks: nothing to remember, and nothing to write to the disk.
    SELECT last_value INTO STRICT o_seq FROM "${schema}".seq;
    RETURN;
  END IF;
  IF v_meta.is_first THEN
    PERFORM "${schema}".begin_incarnation();
  END IF;
  o_seq := nextval('"${schema}".seq');
  INSERT INTO "${schema}".commits (id, seq, at) VALUES (p_id, o_seq, o_now);
  INSERT INTO "${schema}".rows (key, seq, xid, at, body)
    SELECT written.key, o_seq, pg_current_xact_id(), o_now, written.body
    FROM unnest(p_keys, p_bodies, p_is_written) AS written(key, body, is_written) WHERE is_written
    ON CONFLICT (key) DO UPDATE
    SET seq = excluded.seq, xid = excluded.xid, at = excluded.at, body = excluded.body;
  -- A notification makes the commits of the whole database wait for each other.
  IF p_topics <> '' THEN
    v_done := pg_notify('${topicChannel(name)}', p_topics) IS NULL;
  END IF;
END
$body$;

CREATE FUNCTION "${schema}".read_rows(p_keys text[], OUT o_now bigint, OUT o_epoch text, OUT o_rows json)
LANGUAGE sql STABLE AS $body$
  SELECT ${nowMs}, meta.epoch, (
    SELECT json_agg(json_build_array(wanted.key, coalesce(rows.seq, 0), rows.body) ORDER BY wanted.place)
    FROM unnest(p_keys) WITH ORDINALITY AS wanted(key, place) LEFT JOIN "${schema}".rows ON rows.key = wanted.key
  ) FROM "${schema}".meta;
$body$;

-- Every row that exists, in the order of keys. o_low: where a scan of changes goes on afterwards.
CREATE FUNCTION "${schema}".scan_all(
  p_after text, p_limit integer,
  OUT o_now bigint, OUT o_epoch text, OUT o_incarnation text, OUT o_low text, OUT o_purged text, OUT o_rows json
) LANGUAGE sql STABLE AS $body$
  SELECT ${nowMs}, meta.epoch, "${schema}".incarnation(), pg_snapshot_xmin(pg_current_snapshot())::text,
    meta.purged_xid::text, (
      SELECT json_agg(json_build_array(page.key, page.seq, page.body, page.xid::text)) FROM (
        SELECT key, seq, body, xid FROM "${schema}".rows WHERE key > p_after AND body IS NOT NULL ORDER BY key LIMIT p_limit
      ) AS page
    ) FROM "${schema}".meta;
$body$;

-- Every row that was written by the transaction p_xid or a later one, also deleted rows.
CREATE FUNCTION "${schema}".scan_changes(
  p_xid text, p_after text, p_limit integer,
  OUT o_now bigint, OUT o_epoch text, OUT o_incarnation text, OUT o_low text, OUT o_purged text, OUT o_rows json
) LANGUAGE sql STABLE AS $body$
  SELECT ${nowMs}, meta.epoch, "${schema}".incarnation(), pg_snapshot_xmin(pg_current_snapshot())::text,
    meta.purged_xid::text, (
      SELECT json_agg(json_build_array(page.key, page.seq, page.body, page.xid::text)) FROM (
        SELECT key, seq, body, xid FROM "${schema}".rows
        WHERE (xid, key) > (p_xid::xid8, p_after) ORDER BY xid, key LIMIT p_limit
      ) AS page
    ) FROM "${schema}".meta;
$body$;

-- Drops the rows of an epoch, except those of p_kept. The caller has the lock of the epoch alone.
CREATE FUNCTION "${schema}".replace_epoch(p_next text, p_kept text[]) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
  v_seq bigint;
BEGIN
  PERFORM "${schema}".begin_incarnation();
  v_seq := nextval('"${schema}".seq');
  UPDATE "${schema}".rows SET body = NULL, seq = v_seq, xid = pg_current_xact_id(), at = ${nowMs}
    WHERE body IS NOT NULL AND NOT EXISTS (SELECT FROM unnest(p_kept) AS kept WHERE starts_with(key, kept || '/'));
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
    UPDATE "${schema}".rows SET xid = pg_current_xact_id();
    UPDATE "${schema}".meta SET cluster = p_cluster, purged_xid = '0';
  END IF;
END
$body$;

-- Forgets old ids and deletion markers, at most p_limit of each. Returns whether more are left. A marker that the next
-- scan may still need stays.
CREATE FUNCTION "${schema}".purge(p_commits_kept_ms bigint, p_markers_kept_ms bigint, p_limit integer) RETURNS boolean
LANGUAGE plpgsql AS $body$
DECLARE
  v_now bigint := ${nowMs};
  v_commits bigint;
  v_markers bigint;
  v_xid xid8;
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtextextended('${name}', 2)) THEN
    RETURN false;
  END IF;
  DELETE FROM "${schema}".commits WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM "${schema}".commits WHERE at < v_now - p_commits_kept_ms LIMIT p_limit FOR UPDATE SKIP LOCKED
  ));
  GET DIAGNOSTICS v_commits = ROW_COUNT;
  WITH gone AS (
    DELETE FROM "${schema}".rows WHERE key = ANY (ARRAY(
      SELECT key FROM "${schema}".rows
      WHERE body IS NULL AND at < v_now - p_markers_kept_ms AND xid < pg_snapshot_xmin(pg_current_snapshot())
      LIMIT p_limit FOR UPDATE SKIP LOCKED
    )) AND body IS NULL RETURNING xid
  ) SELECT count(*), max(xid) INTO v_markers, v_xid FROM gone;
  UPDATE "${schema}".meta SET purged_xid = v_xid WHERE v_xid > purged_xid;
  RETURN v_commits = p_limit OR v_markers = p_limit;
END
$body$;
`;
}

/** The channel of a schema's notifications. */
export function topicChannel(schema: string): string {
  return `sandlot:${schema}`;
}
