/**
 * The locks of one user's store, between the processes of this machine. The kernel releases them when a holder dies.
 *
 * - Whoever reads or writes objects holds `lock` SHARED; the collector holds it EXCLUSIVE.
 * - Whoever takes or restores holds the thread's turn.
 */

import { hash } from "node:crypto";
import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { openDatabase, troubleOf } from "../../../world/sqlite-driver.ts";
import { sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";

const TURNS = 64;
const RETRY_MS = 5;

/** Resolves when the lock is held. `patienceMs: null` waits as long as it takes; the caller can be ended. */
async function held(
  path: string,
  kind: "shared" | "exclusive",
  world: World,
  patienceMs: number | null,
): Promise<(() => void) | null> {
  const database = openDatabase(path);
  try {
    const startedAt = world.monotonicMs();
    for (;;) {
      if (tryLock(database, kind)) return () => database.close();
      if (patienceMs !== null && world.monotonicMs() - startedAt >= patienceMs) break;
      await sleep(world, RETRY_MS);
    }
  } catch (error) {
    database.close();
    throw error;
  }
  database.close();
  return null;
}

function tryLock(database: DatabaseSync, kind: "shared" | "exclusive"): boolean {
  try {
    // A journal would be a file; setting this reads the file, and so can find it locked.
    database.exec("PRAGMA busy_timeout = 0; PRAGMA journal_mode = MEMORY");
    if (kind === "exclusive") database.exec("BEGIN EXCLUSIVE");
    else database.exec("BEGIN; SELECT count(*) FROM sqlite_master");
    return true;
  } catch (error) {
    if (troubleOf(error)?.kind !== "busy") throw error;
    if (database.isTransaction) database.exec("ROLLBACK");
    return false;
  }
}

export async function shared<T>(lock: string, world: World, work: () => Promise<T>): Promise<T> {
  const release = await held(lock, "shared", world, null);
  try {
    return await work();
  } finally {
    release?.();
  }
}

/** `null` when takers or readers are at work for the whole of that time. */
export async function exclusive<T>(
  lock: string,
  world: World,
  patienceMs: number,
  work: () => Promise<T>,
): Promise<T | null> {
  const release = await held(lock, "exclusive", world, patienceMs);
  if (release === null) return null;
  try {
    return await work();
  } finally {
    release();
  }
}

export async function inTurn<T>(turns: string, thread: string, world: World, work: () => Promise<T>): Promise<T> {
  const number = hash("sha256", thread, "buffer").readUInt32BE() % TURNS;
  const release = await held(join(turns, String(number)), "exclusive", world, null);
  try {
    return await work();
  } finally {
    release?.();
  }
}
