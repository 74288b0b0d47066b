/**
 * The outside of the command line: where text goes, and how an end is told.
 *
 * Invariants
 * - stdout carries results, stderr carries everything else.
 * - With `--json`, stdout is exactly one JSON document, whether the command succeeded or not. Node writes warnings to
 *   stderr, so an error that has to be parsed cannot be there.
 * - An error is printed once: its code, its message, and what to do about it.
 */

import { type ConfigProblem, isSandlotError, SandlotError } from "@sandlot/contract";
import { CommanderError } from "commander";
import type { Environment } from "../config/variables.ts";
import { Interruption } from "./interruption.ts";

export interface Terminal {
  /** Writes as it is; the text ends its own lines. */
  out(text: string): void;
  error(text: string): void;
  /** Bytes as they are; resolves when there is room for more, with whether anybody still reads. */
  write(stream: "stdout" | "stderr", bytes: Uint8Array): Promise<boolean>;
  /** Whether a person sees stderr as it is written. */
  readonly isWatched: boolean;
  readonly stdin: NodeJS.ReadStream;
  size(): { readonly columns: number; readonly rows: number };
  /** Returns how to stop listening. */
  onResize(listener: () => void): () => void;
  readonly environment: Environment;
}

/** What the process ends with. Part of the interface: scripts rely on these. */
export const EXIT_CODES = {
  ok: 0,
  /** The command was understood and failed; the error has a code that says why. */
  failed: 1,
  /** The command line itself was wrong; nothing was tried. */
  usage: 2,
  /** Of `exec`, as `timeout` and `env` have them: what ran, ran out of time; or could not be run by Sandlot. */
  timedOut: 124,
  sandlotFailed: 125,
  interrupted: 130,
  /** As after SIGPIPE: whoever read its output has seen enough. */
  outputGone: 141,
} as const;

export function printJson(terminal: Terminal, value: unknown): void {
  terminal.out(`${JSON.stringify(value, null, 2)}\n`);
}

/** Prints what ended a command, and returns the exit code for it. */
export function printFailure(terminal: Terminal, failure: unknown, json: boolean): number {
  if (failure instanceof Interruption) {
    if (json) printJson(terminal, { interrupted: failure.signalName });
    else terminal.error(`${failure.message}; everything was closed.\n`);
    return failure.exitCode;
  }
  if (failure instanceof CommanderError) return printUsage(terminal, failure, json);
  const error = isSandlotError(failure) ? failure : unexpected(failure);
  if (json) printJson(terminal, { error });
  else terminal.error(`error ${error.code}: ${error.message}\n${listed(error)}  What to do: ${remedyOf(error)}\n`);
  // A stack helps with what should not happen, and is noise on what can.
  if (error.code === "internal" && failure instanceof Error) terminal.error(`${failure.stack}\n`);
  return EXIT_CODES.failed;
}

/** Where the facts of the case say what to do, that is more than the general advice. */
function remedyOf({ details, remedy }: SandlotError): string {
  return "fix" in details && typeof details.fix === "string" && details.fix !== "" ? details.fix : remedy;
}

/** A configuration can be wrong in several places, and all of them are told. */
function listed(error: SandlotError): string {
  const problems = isSandlotError(error, "config_invalid") ? (error.details.problems ?? []) : [];
  return problems.length < 2 ? "" : problems.map((problem) => `  - ${showProblem(problem)}\n`).join("");
}

function showProblem({ path, problem, suggestion, line, column }: ConfigProblem): string {
  const where = line === undefined ? "" : `line ${line}, column ${column}: `;
  const meant = suggestion === undefined ? "" : `; did you mean ${suggestion}?`;
  return `${where}${path === "" ? "" : `${path} `}${problem}${meant}`;
}

/** Commander has printed its own message already, or the help that was asked for. */
function printUsage(terminal: Terminal, failure: CommanderError, json: boolean): number {
  if (failure.exitCode === 0) return EXIT_CODES.ok;
  if (json) {
    const isHelp = failure.code === "commander.help";
    const problem = isHelp ? "no command was given" : failure.message.replace(/^error: /, "").replace(/\n/g, " ");
    printJson(terminal, { error: new SandlotError("invalid_request", { field: "command line", problem }) });
  }
  return EXIT_CODES.usage;
}

function unexpected(failure: unknown): SandlotError {
  return new SandlotError("internal", { problem: failure instanceof Error ? failure.message : String(failure) });
}
