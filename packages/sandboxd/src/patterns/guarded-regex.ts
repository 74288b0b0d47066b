/**
 * Runs regular expressions from outside.
 *
 * A pattern such as `(a+)+$` can take practically forever, and JavaScript cannot stop it from within. A `node:vm` call
 * can: its timeout ends everything inside the call, including matching. Only pure matching goes in, so that ending it
 * half-way leaves nothing behind.
 */

import { type Context, createContext, Script } from "node:vm";
import { SandlotError } from "@sandlot/contract";
import { translated } from "./dialect.ts";

/** Processor time for one batch of lines. Honest patterns need microseconds. */
const MATCH_MAX_CPU_MS = 500;
/** The interval of a wall clock check: on a busy machine other processes may have used the processor meanwhile. */
const LOOK_AFTER_MS = 500;
/** Matching blocks all other requests, so even a starved daemon gives up. */
const LOOKS_MAX = 10;

/** In the dialect of `dialect.ts`. Unsupported syntax is `invalid_pattern`, with a sentence. */
export function compileRegex(pattern: string, flags: string): RegExp {
  try {
    const { source, flags: all } = translated(pattern, flags);
    return new RegExp(source, all);
  } catch (error) {
    // The engine's message repeats the translated pattern, not the given one.
    const problem = (error as Error).message.replace(/^Invalid regular expression: \/[\s\S]*\/[a-z]*: /, "");
    throw new SandlotError("invalid_pattern", { pattern, problem }, { cause: error });
  }
}

/** Runs synchronous matching work, and gives up on it (`invalid_pattern`) when it takes too long. */
export function guarded<T>(pattern: string, work: () => T, maxCpuMs = MATCH_MAX_CPU_MS): T {
  guard ??= { slot: createContext({ work: undefined }), call: new Script("work()") };
  guard.slot.work = work;
  const before = process.cpuUsage();
  try {
    for (let looks = 1; ; looks++) {
      try {
        return guard.call.runInContext(guard.slot, { timeout: Math.min(LOOK_AFTER_MS, maxCpuMs) }) as T;
      } catch (error) {
        if ((error as { code?: unknown }).code !== "ERR_SCRIPT_EXECUTION_TIMEOUT") throw error;
        const { user, system } = process.cpuUsage(before);
        if (looks >= LOOKS_MAX || user + system >= maxCpuMs * 1_000) throw tooLong(pattern, maxCpuMs);
      }
    }
  } finally {
    guard.slot.work = undefined;
  }
}

function tooLong(pattern: string, maxCpuMs: number): SandlotError {
  return new SandlotError("invalid_pattern", { pattern, problem: `matching took more than ${maxCpuMs} ms` });
}

/** Created at its first use: a context costs a millisecond at start. */
let guard: { readonly slot: Context; readonly call: Script } | undefined;
