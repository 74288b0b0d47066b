/**
 * Rows in a schema of a PostgreSQL database.
 *
 * - A commit, a read and a page of a scan are one statement each, and so one round trip and one transaction. Commits that
 *   come while others are under way are joined. The server's part is in `functions.ts` and `commit-function.ts`.
 * - Every call has two limits: its signal, and `timeoutMs`. A call that fails is `store_unavailable`. The server is asked to
 *   stop what a call has given up, so its processes do not pile up behind a replica that is gone.
 * - Where replicas confirm commits, a commit waits for them for a quarter of `timeoutMs`: longer than a healthy one takes,
 *   shorter than a try of the client, so that the caller learns the reason.
 * - A cursor is JSON that names the incarnation and epoch it was made in. In others it is too old.
 * - One process at a time purges old ids and deletion markers, in small steps, every half minute.
 */

import type { Epoch } from "@sandlot/contract";
import type { Timer, World } from "../../world/world.ts";
import { CommitGatherer, type JoinedAnswer, type JoinedCommit } from "../rows/commit-gatherer.ts";
import { epochAfter } from "../rows/epoch-order.ts";
import {
  COMMITS_KEPT_MS,
  type Commit,
  type CommitAnswer,
  type Cursor,
  KEPT_TABLES,
  MARKERS_KEPT_MS,
  type Page,
  type ReadAnswer,
  type Row,
  type RowKey,
  type RowServer,
  type Topic,
} from "../rows/row-server.ts";
import { plainArray, textArray } from "./array-values.ts";
import { type BackendKey, sendCancelRequest } from "./cancel-request.ts";
import { type CheckedConnection, connect, type ServerFacts } from "./connect.ts";
import { type Connection, noAnswer, ServerFailure } from "./connection.ts";
import { ConnectionPool } from "./connection-pool.ts";
import { cursorText, isCurrent, type Position, parseCursor, type Snapshot } from "./cursor.ts";
import { unavailable } from "./problem.ts";
import { migrate } from "./schema.ts";
import { type PostgresSettings, placeOf } from "./settings.ts";
import { TopicListener } from "./topic-listener.ts";

/** How many ids and markers one transaction purges. It takes a few milliseconds. */
const PURGE_BATCH = 1_000;
/** Batches in a row, so that one process is not busy with it for long. */
const PURGE_BATCHES_MAX = 50;
const PURGE_INTERVAL_MS = 30_000;
const IDLE_MS = 60_000;
const STOP_AGAIN_MS = [500, 2_000];
/** A notification has at most 8000 bytes. */
const TOPICS_BYTES_MAX = 7_900;
/** Creating tables takes longer than a call, and happens once. */
const OPEN_TIMEOUT_MS = 60_000;

interface ReadResult extends Omit<ReadAnswer, "rows"> {
  readonly rows: readonly Row[] | null;
}

interface PageResult {
  readonly now: number;
  readonly epoch: Epoch;
  readonly incarnation: string;
  readonly snapshot: Snapshot;
  readonly purged: string;
  readonly rows: readonly (readonly [key: RowKey, seq: number, body: string | null, xid: string])[] | null;
}

/** Connects, checks the server, and creates or migrates the tables. Rejects with `store_unavailable` or `store_corrupt`. */
export async function openPostgresRowServer(settings: PostgresSettings, world: World): Promise<PostgresRowServer> {
  const [opening, migrating] = [deadline(world, settings.timeoutMs), deadline(world, OPEN_TIMEOUT_MS)];
  try {
    const { connection, facts } = await connect(settings, opening.signal);
    try {
      const stop = () => connection.destroy();
      migrating.signal.addEventListener("abort", stop, { once: true });
      await migrate(connection, settings.schema, facts.cluster, newEpoch(world));
      await adoptCluster(connection, settings, facts, world);
    } finally {
      connection.destroy();
    }
    return new PostgresRowServer(settings, world, facts);
  } catch (error) {
    throw translated(error, "open");
  } finally {
    opening.cancel();
    migrating.cancel();
  }
}

export class PostgresRowServer implements RowServer {
  readonly kind = "postgres";
  readonly #settings: PostgresSettings;
  readonly #world: World;
  readonly #pool: ConnectionPool;
  readonly #topics: TopicListener;
  readonly #commits: CommitGatherer;
  #facts: ServerFacts;
  #purgeTimer: Timer | null = null;
  /** Requests to stop that are under way. */
  #stopping = 0;
  #closed = false;

  /** Use `openPostgresRowServer`. */
  constructor(settings: PostgresSettings, world: World, facts: ServerFacts) {
    this.#settings = settings;
    this.#world = world;
    this.#facts = facts;
    const open = (signal: AbortSignal) => this.#open(signal);
    const { monotonicMs } = world;
    this.#pool = new ConnectionPool({ max: settings.poolMax, place: placeOf(settings), open, monotonicMs });
    this.#topics = new TopicListener(settings, world);
    this.#commits = new CommitGatherer({
      world,
      send: (commit, until) => this.#commitTogether(commit, until),
      gaveUp: () => unavailable("commit", noAnswer(placeOf(settings)).problem),
    });
    this.#purgeLater();
  }

  /**
   * With one server, or with replicas that confirm every commit on disk, nothing acknowledged is lost. A replica that
   * follows later loses commits when it takes over.
   */
  get promise(): "linearizable" | "may-rewind" {
    return promiseOf(this.#facts);
  }

  commit(commit: Commit, signal: AbortSignal): Promise<CommitAnswer> {
    return this.#commits.commit(commit, signal);
  }

  async #commitTogether(commit: JoinedCommit, signal: AbortSignal): Promise<JoinedAnswer> {
    const { schema } = this.#settings;
    const { ids, reads, writes } = commit;
    const topics = commit.topics.join(" ");
    const keys = [...reads.keys()].sort();
    const values = [
      textArray(ids),
      commit.epoch,
      textArray(commit.seen),
      Math.floor(commit.seenAt),
      Math.floor(commit.notAfter),
      textArray(keys),
      plainArray(keys.map((key) => reads.get(key) ?? 0)),
      plainArray(keys.map((key) => writes.has(key))),
      textArray([...writes.keys()]),
      textArray([...writes.values()]),
      topics.length > TOPICS_BYTES_MAX ? "*" : topics,
      commit.isDurable,
    ];
    const sql = `SELECT "${schema}".commit_together($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) AS answer`;
    const stopAfterMs = this.#facts.synchronousStandbys === "" ? null : this.#settings.timeoutMs / 4;
    try {
      return JSON.parse(await this.#call<string>("commit", sql, values, signal, stopAfterMs)) as JoinedAnswer;
    } catch (error) {
      // One of them may be to blame. Alone, only that one fails.
      if (ids.length > 1 && error instanceof ServerFailure && isOfValues(error)) return { kind: "split" };
      throw translated(error, "commit");
    }
  }

  async read(keys: readonly RowKey[], signal: AbortSignal): Promise<ReadAnswer> {
    const sql = `SELECT "${this.#settings.schema}".read_rows($1) AS answer`;
    const answer = await this.#ask<ReadResult>("read", sql, [keys], signal);
    return { ...answer, rows: answer.rows ?? [] };
  }

  async scan(since: Cursor | null, limit: number, signal: AbortSignal): Promise<Page | null> {
    const { schema } = this.#settings;
    const position = since === null ? null : parseCursor(since);
    if (since !== null && position === null) return null;
    if (position === null || position.phase === "all") {
      const after = position?.key ?? "";
      const sql = `SELECT "${schema}".scan_all($1, $2) AS answer`;
      const page = await this.#ask<PageResult>("scan", sql, [after, limit], signal);
      return pageOf(page, position, limit);
    }
    const { since: shown, xid, key } = position;
    const sql = `SELECT "${schema}".scan_changes($1, $2, $3, $4) AS answer`;
    const page = await this.#ask<PageResult>("scan", sql, [shown, xid, key, limit], signal);
    return pageOf(page, position, limit);
  }

  async beginEpoch(known: Epoch, next: Epoch, signal: AbortSignal): Promise<Epoch> {
    const sql = `SELECT "${this.#settings.schema}".begin_epoch($1, $2, $3) AS answer`;
    return this.#ask<Epoch>("beginEpoch", sql, [known, next, KEPT_TABLES], signal);
  }

  subscribe(listener: (topic: Topic | "*") => void): () => void {
    return this.#topics.subscribe(listener);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#purgeTimer?.cancel();
    this.#topics.close();
    this.#pool.close();
  }

  async #ask<Answer>(operation: string, sql: string, values: readonly unknown[], signal: AbortSignal): Promise<Answer> {
    try {
      return await this.#call<Answer>(operation, sql, values, signal);
    } catch (error) {
      throw translated(error, operation);
    }
  }

  /** One statement with one value as its answer, prepared once per connection. The server's functions are our own. */
  async #call<Answer>(
    operation: string,
    sql: string,
    values: readonly unknown[],
    signal: AbortSignal,
    stopAfterMs: number | null = null,
  ): Promise<Answer> {
    const limit = deadline(this.#world, this.#settings.timeoutMs, signal);
    const call = { name: operation + values.length, signal: limit.signal };
    try {
      const [row] = await this.#pool.use(limit.signal, async (connection) => {
        if (stopAfterMs === null) return connection.query<{ answer: Answer }>(sql, values, call);
        const stop = deadline(this.#world, stopAfterMs);
        try {
          return await connection.query<{ answer: Answer }>(sql, values, { ...call, stop: stop.signal });
        } finally {
          stop.cancel();
        }
      });
      if (row === undefined) throw unavailable(operation, "the server answered without a row; its schema is damaged");
      return row.answer;
    } finally {
      limit.cancel();
    }
  }

  async #open(signal: AbortSignal): Promise<Connection> {
    const { connection, facts } = await connect(this.#settings, signal, { onStop: (key) => this.#stop(key) });
    try {
      await adoptCluster(connection, this.#settings, facts, this.#world, signal);
    } catch (error) {
      connection.destroy();
      throw error;
    }
    this.#facts = facts;
    return connection;
  }

  /** Again after a while: a request that overtakes its statement stops nothing, and the server then begins it. */
  #stop(key: BackendKey): void {
    void this.#sendStop(key);
    for (const ms of STOP_AGAIN_MS) this.#world.timer(ms, () => void this.#sendStop(key), { background: true });
  }

  /** Not more at once than a few for each connection: a server that hangs takes no request. */
  async #sendStop(key: BackendKey): Promise<void> {
    if (this.#stopping >= this.#settings.poolMax * 4) return;
    this.#stopping += 1;
    const limit = deadline(this.#world, this.#settings.timeoutMs);
    try {
      await sendCancelRequest(this.#settings, key, limit.signal);
    } finally {
      limit.cancel();
      this.#stopping -= 1;
    }
  }

  #purgeLater(): void {
    if (this.#closed) return;
    const delayMs = PURGE_INTERVAL_MS * (0.5 + this.#world.random());
    this.#purgeTimer = this.#world.timer(delayMs, () => void this.purge().finally(() => this.#purgeLater()), {
      background: true,
    });
  }

  /**
   * Never rejects. A failure only delays: the calls of the store report what is wrong with the server. Both parts are
   * tried, because a server that forbids the one may allow the other.
   */
  async purge(keptMs?: number): Promise<void> {
    this.#pool.trim(IDLE_MS);
    try {
      await this.endOrphans();
    } catch {
      // The next turn tries again.
    }
    try {
      for (let batch = 0; batch < PURGE_BATCHES_MAX && !this.#closed; batch += 1)
        if (!(await this.purgeBatch(keptMs))) return;
    } catch {
      // The next turn tries again.
    }
  }

  /**
   * Stops commits of this fleet that wait for a replica longer than any gateway waits for them: their gateway has died, or
   * was cut off. They stand then, and no longer hold up other commits. Returns how many. `sandlot doctor` says where this role
   * may not.
   */
  endOrphans(olderThanMs = this.#settings.timeoutMs * 2): Promise<number> {
    const sql = `SELECT count(pg_cancel_backend(pid))::integer AS answer FROM pg_stat_activity
      WHERE pg_has_role(usesysid, 'USAGE') AND datname = current_database() AND wait_event = 'SyncRep'
        AND starts_with(query, $1) AND query_start < clock_timestamp() - $2 * interval '1 millisecond'`;
    const ours = `SELECT "${this.#settings.schema}".`;
    return this.#ask<number>("endOrphans", sql, [ours, olderThanMs], new AbortController().signal);
  }

  /** Forgets what is older than promised, at most one batch. Returns whether more is left. */
  purgeBatch(keptMs = Math.max(COMMITS_KEPT_MS, MARKERS_KEPT_MS)): Promise<boolean> {
    const sql = `SELECT "${this.#settings.schema}".purge($1, $2) AS answer`;
    return this.#ask<boolean>("purge", sql, [keptMs, PURGE_BATCH], new AbortController().signal);
  }
}

export function promiseOf(facts: ServerFacts): RowServer["promise"] {
  const { synchronousStandbys, synchronousCommit, replicaCount } = facts;
  if (synchronousStandbys === "") return replicaCount === 0 ? "linearizable" : "may-rewind";
  return synchronousCommit === "on" || synchronousCommit === "remote_apply" ? "linearizable" : "may-rewind";
}

/**
 * Before the first commit of a connection. Another run of the server begins another incarnation. Rows that a dump brought
 * from another cluster, database or schema begin a new epoch.
 */
async function adoptCluster(
  connection: Connection,
  { schema }: PostgresSettings,
  { cluster }: CheckedConnection["facts"],
  world: World,
  signal?: AbortSignal,
): Promise<void> {
  const call = signal === undefined ? {} : { signal };
  const [found] = await connection.query<{ known: string; present: string; is_new: boolean }>(
    `SELECT cluster AS known, $1 || '.' || to_regclass($2)::oid AS present,
      incarnation <> "${schema}".incarnation() AS is_new FROM "${schema}".meta`,
    [cluster, `"${schema}".rows`],
    call,
  );
  if (found?.is_new === true) await connection.query(`SELECT "${schema}".begin_incarnation()`, [], call);
  if (found === undefined || found.known === found.present) return;
  const values = [found.present, newEpoch(world), KEPT_TABLES];
  await connection.query(`SELECT "${schema}".adopt_cluster($1, $2, $3)`, values, call);
}

function newEpoch(world: World): Epoch {
  return epochAfter(null, world.wallMs(), world.randomHex(8));
}

/** `null`: the position is of another incarnation or epoch, or markers after it are gone. */
function pageOf(page: PageResult, from: Position | null, limit: number): Page | null {
  const { incarnation, snapshot, epoch, now } = page;
  if (from !== null && !isCurrent(from, page)) return null;
  const tuples = page.rows ?? [];
  const last = tuples.at(-1);
  const next = from?.next ?? snapshot;
  const phase = from?.phase ?? "all";
  const isFull = last !== undefined && tuples.length >= limit;
  // Rows may have changed while the pages of everything were read.
  const more = isFull || (from !== null && phase === "all");
  const position: Position = isFull
    ? { phase, incarnation, epoch, since: from?.since ?? null, next, xid: last[3], key: last[0] }
    : { phase: "changes", incarnation, epoch, since: next, next: null, xid: "0", key: "" };
  return {
    rows: tuples.map(([key, seq, body]) => ({ key, seq, body })),
    cursor: cursorText(position),
    more,
    epoch,
    now,
  };
}

/** SQLSTATE classes of what only the values of one commit can cause: data, limits of the program. */
function isOfValues({ failure: { code } }: ServerFailure): boolean {
  return code !== null && /^(?:22|23|54)/.test(code);
}

function translated(error: unknown, operation: string): unknown {
  return error instanceof ServerFailure ? unavailable(operation, error.failure.problem) : error;
}

/** A signal that aborts after `ms`, or with `parent`. (`AbortSignal.any` costs several times as much.) */
function deadline(world: World, ms: number, parent?: AbortSignal): { readonly signal: AbortSignal; cancel(): void } {
  const controller = new AbortController();
  const abort = () => controller.abort();
  const timer = world.timer(ms, abort, { background: true });
  if (parent?.aborted === true) abort();
  else parent?.addEventListener("abort", abort, { once: true });
  return {
    signal: controller.signal,
    cancel() {
      timer.cancel();
      parent?.removeEventListener("abort", abort);
    },
  };
}
