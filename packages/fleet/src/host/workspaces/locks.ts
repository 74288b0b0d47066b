/**
 * Locks between the processes of one machine, one per thread and one per slot, for steps of a few system calls.
 *
 * A lock is the write lock of an empty SQLite database: the kernel releases it when its holder dies, so there are no
 * stale locks, and nothing is ever written. Names share a fixed number of databases.
 *
 * Invariants
 * - Code under a lock is synchronous. So steps of one process never overlap, and no lock is held across an `await`.
 * - Several locks are taken all at once or not at all, so there is no order to keep and no deadlock.
 * - A lock's file is never removed, and only SQLite opens it: closing any other descriptor would release the lock.
 */

import { hash } from "node:crypto";
import { closeSync, constants, openSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { SandlotError } from "@sandlot/contract";
import { errnoOf } from "../../world/disk-trouble.ts";
import { openDatabase, troubleOf } from "../../world/sqlite-driver.ts";
import { sleep } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";

/** More would cost descriptors, fewer would let threads wait for one another. A step takes well under a millisecond. */
const DATABASES = 64;
/** A holder is done within a fraction of this; only a paused one (SIGSTOP) makes others wait so long. */
const PATIENCE_MS = 10_000;
const RETRY_MS = 2;

interface Lock {
  readonly database: DatabaseSync;
  readonly take: StatementSync;
  readonly giveBack: StatementSync;
}

export class DiskLocks {
  readonly #directory: string;
  readonly #world: World;
  readonly #patienceMs: number;
  readonly #locks = new Map<number, Lock>();

  constructor(directory: string, world: World, patienceMs: number = PATIENCE_MS) {
    this.#directory = directory;
    this.#world = world;
    this.#patienceMs = patienceMs;
    makeFiles(directory);
  }

  /** Runs `work` while no other step holds any of these names. */
  async hold<T>(names: readonly string[], work: () => T): Promise<T> {
    const numbers = [...new Set(names.map(numberOf))];
    const deadline = this.#world.monotonicMs() + this.#patienceMs;
    for (;;) {
      const taken = this.#tryAll(numbers);
      if (taken !== null) {
        try {
          return work();
        } finally {
          for (const lock of taken) lock.giveBack.run();
        }
      }
      if (this.#world.monotonicMs() >= deadline)
        throw this.#unavailable(`another process has held a workspace's lock for ${this.#patienceMs} ms`);
      await sleep(this.#world, RETRY_MS * (0.5 + this.#world.random()));
    }
  }

  close(): void {
    for (const { database } of this.#locks.values()) database.close();
    this.#locks.clear();
  }

  #tryAll(numbers: readonly number[]): readonly Lock[] | null {
    const taken: Lock[] = [];
    for (const number of numbers) {
      try {
        const lock = this.#lock(number);
        lock.take.run();
        taken.push(lock);
      } catch (error) {
        for (const lock of taken) lock.giveBack.run();
        const trouble = troubleOf(error);
        if (trouble?.kind === "busy") return null;
        throw trouble === null ? error : this.#unavailable(`a lock cannot be had: ${trouble.problem}`);
      }
    }
    return taken;
  }

  #lock(number: number): Lock {
    const known = this.#locks.get(number);
    if (known !== undefined) return known;
    const database = openDatabase(fileOf(this.#directory, number));
    // Waiting inside SQLite would block the event loop. A journal would be a file for each lock.
    database.exec("PRAGMA busy_timeout = 0; PRAGMA journal_mode = MEMORY");
    const lock = { database, take: database.prepare("BEGIN IMMEDIATE"), giveBack: database.prepare("ROLLBACK") };
    this.#locks.set(number, lock);
    return lock;
  }

  #unavailable(problem: string): SandlotError {
    const tried = [this.#directory];
    return new SandlotError("engine_unavailable", { engine: "workspaces", problem, tried, retryAfterMs: 1_000 });
  }
}

/** All at the start: on a full disk no file can be created, but removing must still work. */
function makeFiles(directory: string): void {
  const present = new Set(readdirSync(directory));
  for (let number = 0; number < DATABASES; number++) {
    const path = fileOf(directory, number);
    if (present.has(basename(path))) continue;
    try {
      // Exclusively: an existing file is not even opened.
      closeSync(openSync(path, constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY, 0o600));
    } catch (error) {
      if (errnoOf(error) !== "EEXIST") throw error;
    }
  }
}

function fileOf(directory: string, number: number): string {
  return join(directory, `${number}.lock`);
}

function numberOf(name: string): number {
  return hash("sha256", name, "buffer").readUInt32BE() % DATABASES;
}
