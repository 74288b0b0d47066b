/**
 * The registry of this machine's id ranges, one entry per home. Sandboxes of two homes with the same ids would share
 * the kernel's per-account limits, so homes reserve their ranges in one file of the machine (in `/run`, which a reboot
 * empties).
 *
 * Invariants
 * - No two homes have overlapping ranges. A configured range that overlaps another home's is refused.
 * - A home keeps every range it had, also after another was configured: a process with the old configuration may still
 *   give out ids of it. A range is freed when the machine restarts, or when the home is gone and nothing runs with its
 *   ids.
 * - Without a configured range a home gets a free one: the first at or after the place that its own number selects.
 */

import { existsSync, mkdirSync } from "node:fs";
import { dirname } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { SandlotError } from "@sandlot/contract";
import { z } from "zod";
import { openDatabase, troubleOf } from "../../world/sqlite-driver.ts";
import { runningIds } from "./running-ids.ts";

/** `count` ids from `first` on, two for each sandbox. */
export interface IdRange {
  readonly first: number;
  readonly count: number;
}

/** Ids that no distribution, engine or directory service assigns (systemd's "UIDS-GIDS" calls them unused). */
export const AUTOMATIC_IDS = { first: 1_900_000_000, count: 100_000_000 } as const;
/** 32,768 sandboxes per home at once, and 1,500 homes. */
const HOME_COUNT = 65_536;
const BLOCKS = Math.floor(AUTOMATIC_IDS.count / HOME_COUNT);
export const ID_REGISTRY = "/run/sandlot/ids.sqlite";
/** A reservation takes a millisecond; only a process paused in the middle of one makes others wait. */
const PATIENCE_MS = 2_000;

const rowsSchema = z.array(z.object({ home: z.string(), first: z.int(), count: z.int() }));
type Row = z.infer<typeof rowsSchema>[number];

export interface Reservation {
  /** The home's directory, with links resolved. */
  readonly home: string;
  /** `null`: any free range. */
  readonly configured: IdRange | null;
  /** The home's own number (`home-number.ts`). */
  readonly number: number;
  readonly registry?: string | undefined;
}

/** Throws `config_invalid` when another home owns some of the configured ids. */
export function reserveRange({ home, configured, number, registry = ID_REGISTRY }: Reservation): IdRange {
  mkdirSync(dirname(registry), { recursive: true, mode: 0o700 });
  return inTransaction(registry, (database) => {
    const rows = rowsSchema.parse(database.prepare("SELECT home, first, count FROM ranges").all());
    const others = forgetGone(database, rows, home);
    const range = configured ?? freeBlock(number, others);
    const taken = others.find((row) => overlap(row, range));
    if (taken !== undefined) throw overlapping(range, taken);
    if (!rows.some((row) => row.home === home && isSame(row, range)))
      database
        .prepare("INSERT OR REPLACE INTO ranges (home, first, count) VALUES (?, ?, ?)")
        .run(home, range.first, range.count);
    return { first: range.first, count: range.count };
  });
}

function isWithin(id: number, { first, count }: IdRange): boolean {
  return id >= first && id < first + count;
}

function inTransaction<T>(path: string, work: (database: DatabaseSync) => T): T {
  const database = openDatabase(path);
  try {
    // Before anything is served. The journal is on disk, so a process killed in between damages nothing.
    database.exec(`PRAGMA busy_timeout = ${PATIENCE_MS}; PRAGMA journal_mode = DELETE; BEGIN IMMEDIATE`);
    database.exec(
      "CREATE TABLE IF NOT EXISTS ranges (home TEXT NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (home, first))",
    );
    const result = work(database);
    database.exec("COMMIT");
    return result;
  } catch (error) {
    const trouble = troubleOf(error);
    if (trouble === null) throw error;
    const problem = `the ids of sandboxes cannot be reserved: ${trouble.problem}`;
    throw new SandlotError("engine_unavailable", { engine: "ids", problem, tried: [path], retryAfterMs: 1_000 });
  } finally {
    database.close();
  }
}

/** A removed home needs no range, unless one of its sandboxes still runs. */
function forgetGone(database: DatabaseSync, rows: readonly Row[], home: string): readonly Row[] {
  const others = rows.filter((row) => row.home !== home);
  const gone = others.filter((row) => !existsSync(row.home));
  if (gone.length === 0) return others;
  const running = runningIds();
  const over = gone.filter((row) => ![...running].some((id) => isWithin(id, row)));
  for (const row of over) database.prepare("DELETE FROM ranges WHERE home = ? AND first = ?").run(row.home, row.first);
  return others.filter((row) => !over.includes(row));
}

function freeBlock(number: number, others: readonly Row[]): IdRange {
  const start = number % BLOCKS;
  for (let step = 0; step < BLOCKS; step++) {
    const range = blockAt((start + step) % BLOCKS);
    if (!others.some((row) => overlap(row, range))) return range;
  }
  const problem = "every range of ids is taken by another home";
  throw new SandlotError("isolation_unavailable", { backend: "local", problem, fix: "set accountIds to a free range" });
}

function blockAt(block: number): IdRange {
  return { first: AUTOMATIC_IDS.first + block * HOME_COUNT, count: HOME_COUNT };
}

function overlap(a: IdRange, b: IdRange): boolean {
  return a.first < b.first + b.count && b.first < a.first + a.count;
}

function isSame(a: IdRange, b: IdRange): boolean {
  return a.first === b.first && a.count === b.count;
}

function overlapping({ first, count }: IdRange, { home, ...taken }: Row): SandlotError {
  const problem =
    `the ids ${first} to ${first + count - 1} overlap those of the home ${home} (${taken.first} to ` +
    `${taken.first + taken.count - 1}), which it has until the machine restarts; choose others, or leave accountIds out to ` +
    "get a free range";
  return new SandlotError("config_invalid", { path: "accountIds", problem });
}
