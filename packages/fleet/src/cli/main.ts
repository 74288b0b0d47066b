/**
 * The entry of `bin/sandlot.mjs`: importing this file runs the command line and sets the process's exit code. To use
 * the command line without running it, import `program.ts`.
 */

import { once } from "node:events";
import { interruptible } from "./interruption.ts";
import { run } from "./program.ts";
import type { Terminal } from "./terminal.ts";

/** Runs one command line, `argv` as in Node, and resolves with its exit code. */
export function main(argv: readonly string[]): Promise<number> {
  return interruptible((signal) => run(argv, processTerminal(), signal));
}

function processTerminal(): Terminal {
  // A reader that stopped (`| head`) or a closed terminal is no failure, and must not stop the cleanup.
  const gone = new Set<"stdout" | "stderr">();
  for (const name of ["stdout", "stderr"] as const) process[name].on("error", () => gone.add(name));
  return {
    out: (text) => void process.stdout.write(text),
    error: (text) => void process.stderr.write(text),
    write: async (name, bytes) => {
      const stream = process[name];
      if (gone.has(name) || stream.destroyed) return false;
      const over = new AbortController();
      const happens = (event: string) => once(stream, event, { signal: over.signal }).catch(() => undefined);
      if (!stream.write(bytes)) await Promise.race(["drain", "close", "error"].map(happens));
      over.abort();
      return !gone.has(name);
    },
    isWatched: process.stderr.isTTY === true,
    // A getter, because accessing stdin opens it.
    get stdin() {
      return process.stdin;
    },
    // A terminal without a size reports 0.
    size: () => ({ columns: process.stdout.columns || 80, rows: process.stdout.rows || 24 }),
    onResize: (listener) => {
      process.stdout.on("resize", listener);
      return () => process.stdout.off("resize", listener);
    },
    environment: process.env,
  };
}

// Not `process.exit`: that would cut off output that a pipe has not taken yet.
void main(process.argv).then((exitCode) => {
  process.exitCode = exitCode;
});
