/**
 * The function of the server that checks and applies a commit, or several that a gateway has joined. Its locks and what it
 * writes are described in `functions.ts`.
 */

import { COMMITS_KEPT_MS } from "../rows/row-server.ts";
import { epochLockOf, keySeedOf, NOW_MS, topicChannel } from "./functions.ts";

/** The server holds 64 locks for each of its connections by default. */
const LOCKED_KEYS_MAX = 64;

export function createCommitFunction(schema: string): string {
  const name = schema.replaceAll("'", "''");
  const [keySeed, epochLock] = [keySeedOf(schema), epochLockOf(schema)];
  return `
-- Assignments and long expressions, because PL/pgSQL prepares each expression in each transaction, and PERFORM would run a
-- query. The answer is JSON.
CREATE FUNCTION "${schema}".commit_together(
  -- One commit, or several that were joined: they are applied together or not at all.
  p_ids text[], p_epoch text, p_seen text[], p_seen_at bigint, p_not_after bigint,
  -- The rows that are read, in the order of the keys, and which of them are written.
  p_keys text[], p_seqs bigint[], p_is_written boolean[],
  p_written text[], p_bodies text[],
  p_topics text, p_is_durable boolean
) RETURNS text LANGUAGE plpgsql AS $body$
DECLARE
  v_now bigint;
  v_seq bigint;
  v_hash bigint;
  v_meta record;
  v_done boolean;
BEGIN
  IF current_setting('fsync') || current_setting('full_page_writes') || current_setting('synchronous_commit') <> 'ononon' THEN
    PERFORM "${schema}".check_settings(p_is_durable);
  END IF;
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

  v_now := ${NOW_MS};
  SELECT meta.epoch, meta.rows_file,
    (SELECT commits.seq FROM "${schema}".commits WHERE commits.id = ANY (p_ids) LIMIT 1) AS known_seq,
    (
      SELECT json_agg(json_build_object('key', read.key, 'seq', coalesce(rows.seq, 0), 'body', rows.body))
      FROM unnest(p_keys, p_seqs) AS read(key, seq) LEFT JOIN "${schema}".rows ON rows.key = read.key
      WHERE coalesce(rows.seq, 0) <> read.seq
    ) AS changed
    INTO STRICT v_meta FROM "${schema}".meta;
  IF v_meta.epoch <> p_epoch THEN
    RETURN json_build_object('kind', 'new-epoch', 'epoch', v_meta.epoch, 'now', v_now);
  END IF;
  IF v_meta.known_seq IS NOT NULL THEN
    IF cardinality(p_ids) > 1 THEN
      RETURN '{"kind":"split"}';
    END IF;
    -- The first answer may not have waited for the replicas. A write waits for them, with all that came before it.
    UPDATE "${schema}".commits SET seq = seq WHERE id = ANY (p_ids);
    RETURN '{"kind":"committed","seq":' || v_meta.known_seq || ',"now":' || v_now || '}';
  END IF;
  IF cardinality(p_seen) > 0 AND p_seen_at > v_now - ${COMMITS_KEPT_MS / 2} THEN
    IF EXISTS (
      SELECT FROM unnest(p_seen) AS seen WHERE NOT EXISTS (SELECT FROM "${schema}".commits WHERE commits.id = seen)
    ) THEN
      RETURN json_build_object('kind', 'rewound', 'now', v_now);
    END IF;
  END IF;
  IF v_now > p_not_after THEN
    RETURN json_build_object('kind', 'late', 'now', v_now);
  END IF;
  IF v_meta.changed IS NOT NULL THEN
    RETURN json_build_object('kind', 'conflict', 'rows', v_meta.changed, 'now', v_now);
  END IF;
  IF p_written = '{}' THEN
    -- It only checks: nothing to remember, and nothing to write to the disk.
    SELECT last_value INTO STRICT v_seq FROM "${schema}".seq;
    RETURN '{"kind":"committed","seq":' || v_seq || ',"now":' || v_now || '}';
  END IF;

  IF v_meta.rows_file <> pg_relation_filenode('"${schema}".rows') THEN
    PERFORM "${schema}".begin_incarnation();
  END IF;
  v_seq := nextval('"${schema}".seq');
  WITH logged AS (
    INSERT INTO "${schema}".commits (id, seq, at, xid, keys)
      SELECT joined.id, v_seq, v_now, pg_current_xact_id(), CASE joined.place WHEN 1 THEN p_written ELSE '{}' END
      FROM unnest(p_ids) WITH ORDINALITY AS joined(id, place)
  )
  INSERT INTO "${schema}".rows (key, seq, body)
    SELECT written.key, v_seq, written.body FROM unnest(p_written, p_bodies) AS written(key, body)
    ON CONFLICT (key) DO UPDATE SET seq = excluded.seq, body = excluded.body;
  -- A notification makes the commits of the whole database wait for each other.
  IF p_topics <> '' THEN
    v_done := pg_notify('${topicChannel(name)}', p_topics) IS NULL;
  END IF;
  RETURN '{"kind":"committed","seq":' || v_seq || ',"now":' || v_now || '}';
END
$body$;

-- As it is called by versions that join no commits.
CREATE OR REPLACE FUNCTION "${schema}".commit_rows(
  p_id text, p_epoch text, p_seen text[], p_seen_at bigint, p_not_after bigint,
  p_keys text[], p_seqs bigint[], p_is_written boolean[], p_written text[], p_bodies text[],
  p_topics text, p_is_durable boolean
) RETURNS text LANGUAGE plpgsql AS $body$
BEGIN
  RETURN "${schema}".commit_together(
    ARRAY[p_id], p_epoch, p_seen, p_seen_at, p_not_after, p_keys, p_seqs, p_is_written, p_written, p_bodies, p_topics,
    p_is_durable
  );
END
$body$;
`;
}
