/**
 * A child's reports to main, and its log for analysing a violation.
 *
 * Invariant: a note has left this process when `note` returns, so main knows everything that was acknowledged before a
 * SIGKILL.
 */

import { openSync, writeSync } from "node:fs";
import { isSandlotError } from "@sandlot/contract";
import type { Note } from "../wire.ts";

const STDOUT = 1;

/** Errors that a caller may get while processes are killed and stopped and the engine has faults. */
const ORDINARY = new Set([
  "acquire_timeout",
  "capacity_exhausted",
  "create_failed",
  "lease_not_found",
  "lease_released",
  "sandbox_expired",
  "sandbox_in_use",
  "sandbox_lost",
  "sandbox_unreachable",
  "store_unavailable",
]);
/** Errors that only a use may get: an acquire gets the present sandbox. */
const ORDINARY_FOR_USE = new Set(["stale_generation"]);
const USES = new Set(["write", "read"]);
/** Errors where the database may lose what it acknowledged. */
const ORDINARY_AFTER_LOSS = new Set(["store_recovering"]);

export class Report {
  readonly #log: number;
  readonly #losesCommits: boolean;
  #calls = 0;

  /** `losesCommits`: the run lets its database lose what it acknowledged. */
  constructor(logPath: string, losesCommits: boolean) {
    this.#log = openSync(logPath, "a");
    this.#losesCommits = losesCommits;
  }

  note(note: Note): void {
    writeSync(STDOUT, `${JSON.stringify(note)}\n`);
  }

  log(text: string): void {
    writeSync(this.#log, `${Date.now() % 10_000_000} ${text}\n`);
  }

  violation(what: string): void {
    this.log(`VIOLATION ${what}`);
    this.note({ note: "violation", what });
  }

  #isOrdinary(kind: string, error: string): boolean {
    if (error === "aborted" || ORDINARY.has(error)) return true;
    return (USES.has(kind) && ORDINARY_FOR_USE.has(error)) || (this.#losesCommits && ORDINARY_AFTER_LOSS.has(error));
  }

  /** Follows a call from start to end. `null`: it failed; an unexpected failure is reported. */
  async call<T>(kind: string, owner: string, deadlineMs: number, work: () => Promise<T>): Promise<T | null> {
    this.#calls += 1;
    const call = this.#calls;
    const startedAt = performance.now();
    this.note({ note: "start", call, kind, owner, deadlineMs });
    let error: string | null = null;
    try {
      return await work();
    } catch (thrown) {
      error = nameOf(thrown);
      if (!this.#isOrdinary(kind, error)) this.violation(`${kind} of ${owner} failed oddly: ${describe(thrown)}`);
      return null;
    } finally {
      const ms = Math.round(performance.now() - startedAt);
      this.log(`${kind} ${owner} #${call} ${ms} ms ${error ?? "ok"}`);
      this.note({ note: "settle", call, ms, error });
    }
  }
}

function nameOf(error: unknown): string {
  if (isSandlotError(error)) return error.code;
  return error === "aborted" ? "aborted" : "unknown";
}

function describe(error: unknown): string {
  return error instanceof Error
    ? `${isSandlotError(error) ? `${error.code}: ` : ""}${error.stack ?? error.message}`
    : String(error);
}
