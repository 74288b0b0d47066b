/**
 * Opens a file: makes it if there never was one, refuses a foreign or damaged one, migrates it to the present schema,
 * and finds out whether it is the store that was here before.
 *
 * - A file is made beside its place and linked there when it is complete. So several processes that open a fresh path
 *   get one store with one epoch, a file in place is never half-made, and an empty one is always a damaged one.
 * - A file that does not match the marker (a backup, a copy) is a store of another time: it gets a new epoch and begins
 *   in recovery, without its records. The holders and the engine know better which sandboxes exist.
 * - Every open raises the generation counter to the present time: the last commits before a power cut may be lost
 *   (see `SYNCHRONOUS`), and a generation must never be given twice.
 */

import {
  accessSync,
  closeSync,
  constants,
  fsyncSync,
  linkSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { type Epoch, SandlotError } from "@sandlot/contract";
import { CorruptRow, openDatabase, troubleOf } from "../../world/sqlite-driver.ts";
import type { World } from "../../world/world.ts";
import { type ClockRow, clockOfBoot, readClock } from "../store-clock.ts";
import { Connection } from "./connection.ts";
import { type Patience, RETRY_AFTER_MS, whenFree } from "./contention.ts";
import {
  codeOf,
  type FileIdentity,
  identify,
  isMarkerOf,
  markerOf,
  readMarker,
  syncDirectory,
  writeMarker,
} from "./file.ts";
import { toClock, toMeta } from "./rows.ts";
import { APPLICATION_ID, migrate, SCHEMA_VERSION, tablesOf } from "./schema.ts";

/**
 * NORMAL: the operating system has a commit, but the disk may not. A killed process loses nothing; a power cut may lose
 * the last moments, never the file. FULL would wait for the disk in every commit, ten times as long, with the event
 * loop blocked. After a power cut the sandboxes of this host are gone as well, and the reconciler finds their remains,
 * so the last moments are not worth that.
 */
const SYNCHRONOUS = "NORMAL";
/** The next checkpoint cuts a WAL that grew behind a slow reader back to this. */
const WAL_LIMIT_BYTES = 16 * 1024 * 1024;
/** The header of every SQLite database. */
const HEADER_BYTES = 100n;
/** An unfinished file that is older than this belongs to a killed process. */
const DRAFT_AGE_MAX_MS = 60_000;

/** `known`: the epoch that was open here until the file was replaced. Then a missing file is not made anew. */
export async function openFile(path: string, patience: Patience, known: Epoch | null): Promise<Connection> {
  const { world, operation } = patience;
  try {
    if (known === null) makeIfNew(path, world);
    const file = identify(path);
    if (file === null) throw absent(path, operation);
    requireWritable(path, operation);
    requireHeader(path, file);
    const db = openDatabase(existing(path));
    try {
      await whenFree(patience, () => requireOurs(db, path));
      await whenFree(patience, () => configure(db, path));
      await whenFree(patience, () => check(db, path));
      const { epoch, clock } = await whenFree(patience, () => settle(db, path, file, known, patience));
      return new Connection({ db, path, file, epoch, now: () => readClock(world, clock) });
    } catch (error) {
      db.close();
      throw error;
    }
  } catch (error) {
    throw translate(error, path, operation);
  }
}

/** Turns any error into a `SandlotError` with the file's name. */
export function translate(error: unknown, path: string, operation: string): Error {
  if (error instanceof SandlotError) return error;
  if (error instanceof CorruptRow)
    return new SandlotError("store_corrupt", { path, problem: error.message }, { cause: error });
  const trouble = troubleOf(error);
  if (trouble?.kind === "corrupt")
    return new SandlotError("store_corrupt", { path, problem: trouble.problem }, { cause: error });
  if (trouble?.kind === "bug") return new SandlotError("internal", { problem: trouble.problem }, { cause: error });
  if (trouble !== null) return unavailable(operation, `${path}: ${trouble.problem}`, error);
  // Errors of the file system name the operation and the path.
  if (error instanceof Error && codeOf(error) !== null)
    return unavailable(operation, `${path}: ${error.message}`, error);
  return error instanceof Error ? error : new SandlotError("internal", { problem: String(error) });
}

export function unavailable(operation: string, problem: string, cause?: unknown): SandlotError {
  return new SandlotError("store_unavailable", { operation, problem, retryAfterMs: RETRY_AFTER_MS }, { cause });
}

export function absent(path: string, operation: string): SandlotError {
  const problem = `${path} was deleted. Put the file back, or stop every process that uses it before starting anew`;
  return unavailable(operation, problem);
}

export function tooNew(path: string, operation: string): SandlotError {
  const remedy = `restart this process with that version, or give it another store.path`;
  const problem = `a newer version of Sandlot has migrated ${path} beyond schema version ${SCHEMA_VERSION}; ${remedy}`;
  return unavailable(operation, problem);
}

/** As a URL, because only a URL can forbid creating a missing file. */
function existing(path: string): string {
  const url = pathToFileURL(path);
  url.searchParams.set("mode", "rw");
  return url.href;
}

/** SQLite would open a read-only file without an error, and fail at the first write. */
function requireWritable(path: string, operation: string): void {
  for (const needed of [path, dirname(path)]) {
    try {
      accessSync(needed, constants.R_OK | constants.W_OK);
    } catch (error) {
      if (codeOf(error) === "ENOENT") throw absent(path, operation);
      const remedy = "give it the rights, or choose another store.path";
      throw unavailable(operation, `${needed} cannot be read and written by this process; ${remedy}`, error);
    }
  }
}

/** SQLite takes an empty file for a new database. */
function requireHeader(path: string, file: FileIdentity): void {
  if (file.sizeBytes >= HEADER_BYTES) return;
  const problem =
    file.sizeBytes === 0n
      ? "the file is empty, so what it held is lost"
      : `the file was cut off after ${file.sizeBytes} bytes`;
  throw new SandlotError("store_corrupt", { path, problem });
}

/** Before any change: a database of another program stays untouched. */
function requireOurs(db: DatabaseSync, path: string): void {
  const applicationId = Number(db.prepare("PRAGMA application_id").get()?.application_id);
  if (applicationId === APPLICATION_ID) return;
  const problem = `it is the database of another program (application_id ${applicationId})`;
  throw new SandlotError("store_corrupt", { path, problem });
}

function makeIfNew(path: string, world: World): void {
  // Read the evidence of a former store before the file: marker and WAL both appear after the file.
  const evidence = evidenceOfFormer(path);
  if (identify(path) !== null) return;
  if (evidence !== null) {
    const problem = `the file was deleted, although a store was here (${evidence} is still there)`;
    throw new SandlotError("store_corrupt", { path, problem });
  }
  sweepDrafts(path, world);
  make(path, world);
}

function evidenceOfFormer(path: string): string | null {
  if (readMarker(path) !== null) return `${path}.epoch`;
  // SQLite would replay a leftover WAL into the new file.
  const wal = statSync(`${path}-wal`, { throwIfNoEntry: false });
  return wal !== undefined && wal.size > 0 ? `${path}-wal` : null;
}

/** Makes a complete file and puts it in place, unless another process was faster. */
function make(path: string, world: World): void {
  const draft = `${path}.new-${world.randomHex(8)}`;
  try {
    // Tokens are secrets. SQLite gives the files beside it the same mode.
    closeSync(openSync(draft, "wx", 0o600));
    const db = openDatabase(draft);
    try {
      db.exec(`PRAGMA journal_mode = WAL; PRAGMA application_id = ${APPLICATION_ID}; BEGIN IMMEDIATE`);
      migrate(db);
      db.prepare("INSERT INTO meta (one, epoch, recovering, generation) VALUES (1, ?, 1, ?)").run(
        world.randomHex(16),
        Math.floor(world.wallMs()),
      );
      db.exec("COMMIT");
    } finally {
      db.close();
    }
    const fd = openSync(draft, "r+");
    fsyncSync(fd);
    closeSync(fd);
    // Unlike a rename, a link never replaces an existing file.
    linkSync(draft, path);
    syncDirectory(dirname(path));
  } catch (error) {
    if (codeOf(error) !== "EEXIST") throw error;
  } finally {
    for (const suffix of ["", "-wal", "-shm", "-journal"]) rmSync(draft + suffix, { force: true });
  }
}

function sweepDrafts(path: string, world: World): void {
  const directory = dirname(path);
  for (const name of readdirSync(directory)) {
    if (!name.startsWith(`${basename(path)}.new-`) && !name.startsWith(`${basename(path)}.epoch.new-`)) continue;
    const draft = statSync(join(directory, name), { throwIfNoEntry: false });
    if (draft !== undefined && world.wallMs() - draft.mtimeMs > DRAFT_AGE_MAX_MS) {
      rmSync(join(directory, name), { force: true });
    }
  }
}

function configure(db: DatabaseSync, path: string): void {
  const mode = db.prepare("PRAGMA journal_mode = WAL").get()?.journal_mode;
  if (mode !== "wal") {
    throw new SandlotError("store_unavailable", {
      operation: "open",
      problem: `${path} lies on a file system that cannot share memory between processes; move it to a local disk`,
      retryAfterMs: RETRY_AFTER_MS,
    });
  }
  db.exec(
    `PRAGMA synchronous = ${SYNCHRONOUS}; PRAGMA journal_size_limit = ${WAL_LIMIT_BYTES}; PRAGMA trusted_schema = OFF`,
  );
}

/** The file is small (a row per sandbox), so a full check costs a millisecond or two. */
function check(db: DatabaseSync, path: string): void {
  const found = db.prepare("PRAGMA quick_check(1)").get()?.quick_check;
  if (found === "ok") return;
  throw new SandlotError("store_corrupt", { path, problem: `the database is damaged (${String(found)})` });
}

/** A file whose tables do not match its version was changed by another program. */
function bringUpToDate(db: DatabaseSync, path: string, operation: string): void {
  const corrupt = (problem: string, cause?: unknown) => new SandlotError("store_corrupt", { path, problem }, { cause });
  try {
    const version = migrate(db);
    if (version === "unreadable") throw tooNew(path, operation);
    if (version === "newer") return;
  } catch (error) {
    const trouble = troubleOf(error);
    if (trouble?.kind !== "bug") throw error;
    throw corrupt(`its tables are not those of its schema version (${trouble.problem})`, error);
  }
  if (tablesOf(db) !== tablesOfThisVersion()) throw corrupt("its tables are not those of its schema version");
}

let tables: string | null = null;
function tablesOfThisVersion(): string {
  if (tables !== null) return tables;
  const db = openDatabase(":memory:");
  try {
    migrate(db);
    tables = tablesOf(db);
    return tables;
  } finally {
    db.close();
  }
}

/** The clock of this boot. The first process that opens the file after a boot begins it. */
function settleClock(db: DatabaseSync, world: World): ClockRow {
  const kept = toClock(db.prepare("SELECT clock_boot, clock_base FROM meta").get());
  const latest = db.prepare(LATEST).get()?.latest;
  const clock = clockOfBoot(world, kept, typeof latest === "number" && latest <= LATEST_MAX_MS ? latest : 0);
  if (clock !== kept) db.prepare("UPDATE meta SET clock_boot = ?, clock_base = ?").run(clock.boot, clock.baseMs);
  return clock;
}

/** The latest time that was ever written. Unreadable values are skipped here; reading their row reports them. */
const LATEST = `
  SELECT max(
    coalesce((SELECT max(last_beat_at) FROM sessions), 0),
    coalesce((SELECT max(CAST(body ->> 'createdAt' AS INTEGER)) FROM records WHERE json_valid(body)), 0),
    coalesce((SELECT max(CAST(body ->> 'parkedAt' AS INTEGER)) FROM records WHERE json_valid(body)), 0),
    coalesce((SELECT max(CAST(body ->> 'stoppedAt' AS INTEGER)) FROM obituaries WHERE json_valid(body)), 0)
  ) AS latest`;
/** The last moment of a JavaScript date: Sandlot writes no larger value. */
const LATEST_MAX_MS = 8.64e15;

/** Migrates and decides the epoch, in one transaction, so that several openers agree. */
function settle(
  db: DatabaseSync,
  path: string,
  file: FileIdentity,
  known: Epoch | null,
  { world, operation }: Patience,
): { readonly epoch: Epoch; readonly clock: ClockRow } {
  db.exec("BEGIN IMMEDIATE");
  try {
    bringUpToDate(db, path, operation);
    const clock = settleClock(db, world);
    const meta = toMeta(db.prepare("SELECT epoch, recovering, generation FROM meta").get());
    const marker = readMarker(path);
    const isAsMarked =
      marker !== null && marker !== "unreadable" && marker.epoch === meta.epoch && isMarkerOf(marker, file);
    const isStrange = meta.epoch === known || (marker !== null && marker !== "unreadable" && !isAsMarked);
    const epoch = isStrange ? (world.randomHex(16) as Epoch) : meta.epoch;
    if (isStrange) {
      db.exec("DELETE FROM sessions; DELETE FROM records; DELETE FROM leases");
      db.prepare("UPDATE meta SET epoch = ?, recovering = 1").run(epoch);
    }
    db.prepare("UPDATE meta SET generation = max(generation, ?)").run(Math.floor(world.wallMs()));
    // Before the commit, under the write lock, so that markers follow one another like the epochs. If the commit fails,
    // the next opener finds a marker that does not match, which costs only one more recovery.
    if (!isAsMarked || isStrange) writeMarker(path, markerOf(epoch, file), world.randomHex(8));
    db.exec("COMMIT");
    return { epoch, clock };
  } catch (error) {
    if (db.isTransaction) db.exec("ROLLBACK");
    throw error;
  }
}
