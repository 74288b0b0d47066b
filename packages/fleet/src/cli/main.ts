/**
 * The entry of `bin/sandlot.mjs`: importing this file runs the command line and sets the process's exit code.
 * Whoever wants the command line without running it imports `program.ts`.
 */

import { interruptible } from "./interruption.ts";
import { run } from "./program.ts";
import type { Terminal } from "./terminal.ts";

/** Runs one command line, `argv` as Node has it, and resolves with its exit code. */
export function main(argv: readonly string[]): Promise<number> {
  return interruptible((signal) => run(argv, processTerminal(), signal));
}

function processTerminal(): Terminal {
  // A reader that has seen enough (`| head`) or a terminal that is gone is no reason to fail, or to stop closing.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  return {
    out: (text) => void process.stdout.write(text),
    error: (text) => void process.stderr.write(text),
    environment: process.env,
  };
}

// Not `process.exit`: that would cut off output that a pipe has not taken yet.
process.exitCode = await main(process.argv);
