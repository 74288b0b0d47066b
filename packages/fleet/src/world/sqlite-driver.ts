/**
 * node:sqlite, loaded at its first use, and the meaning of its errors.
 *
 * Node 22 announces the module as experimental on standard error. The operator did not choose the module and cannot act
 * on the notice, so exactly this one is dropped; every other warning passes.
 */

import type { DatabaseSync } from "node:sqlite";
import { SandlotError } from "@sandlot/contract";

type Sqlite = typeof import("node:sqlite");

/**
 * The longest time that SQLite itself waits for a lock, and so that one try blocks the event loop. A running peer's
 * transaction takes a fraction of this; for a paused one we wait without blocking.
 */
const BUSY_TIMEOUT_MS = 10;

let loaded: Sqlite | undefined;

export function openDatabase(path: string): DatabaseSync {
  loaded ??= withoutExperimentalNotice(() => process.getBuiltinModule("node:sqlite") as Sqlite | undefined);
  if (loaded === undefined) {
    throw new SandlotError("dependency_missing", {
      package: "node:sqlite",
      neededBy: "the SQLite store",
      install: "use Node.js 22.18 or later, built with SQLite",
    });
  }
  return new loaded.DatabaseSync(path, { timeout: BUSY_TIMEOUT_MS });
}

/** `load` runs synchronously, so no other warning can be emitted while the filter is in place. */
function withoutExperimentalNotice<T>(load: () => T): T {
  const emitWarning = process.emitWarning;
  process.emitWarning = ((...args: unknown[]) => {
    const [warning, kind] = args;
    if (kind === "ExperimentalWarning" && typeof warning === "string" && warning.startsWith("SQLite is an ")) return;
    Reflect.apply(emitWarning, process, args);
  }) as typeof process.emitWarning;
  try {
    return load();
  } finally {
    process.emitWarning = emitWarning;
  }
}

/**
 * - `busy`: another process is using it; retrying helps.
 * - `corrupt`: the file is no database, or a damaged one.
 * - `refused`: the machine refuses: no space, read-only, no permission, an I/O error. Nothing was written.
 * - `bug`: SQLite works and our use is wrong.
 */
type Trouble = { readonly kind: "busy" | "corrupt" | "refused" | "bug"; readonly problem: string };

const BY_CODE: Readonly<Record<number, Trouble>> = {
  3: { kind: "refused", problem: "access to it was denied" },
  5: { kind: "busy", problem: "another process has it locked" },
  6: { kind: "busy", problem: "it is locked" },
  7: { kind: "refused", problem: "out of memory" },
  8: { kind: "refused", problem: "it is read-only" },
  10: { kind: "refused", problem: "reading or writing it failed" },
  11: { kind: "corrupt", problem: "the database is damaged" },
  13: { kind: "refused", problem: "the disk is full" },
  14: { kind: "refused", problem: "it cannot be opened" },
  // Many concurrent openers can repeatedly lose a race for the WAL's index; it is a kind of busy.
  15: { kind: "busy", problem: "too many processes are opening it at once" },
  // Another process has migrated the file meanwhile; the statement is prepared anew.
  17: { kind: "busy", problem: "its schema is being changed" },
  26: { kind: "corrupt", problem: "it is not an SQLite database" },
};

/** The meaning of an error of node:sqlite; `null` when it is not one. */
export function troubleOf(error: unknown): Trouble | null {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return null;
  // The low byte is the primary code; no decision here needs the rest.
  const known = BY_CODE[error.errcode & 0xff];
  if (known === undefined) return { kind: "bug", problem: error.message };
  return { kind: known.kind, problem: `${known.problem} (${error.message})` };
}

/** A row that we did not write like this. The store turns it into `store_corrupt`, which names the file. */
export class CorruptRow extends Error {
  override readonly name = "CorruptRow";
}
