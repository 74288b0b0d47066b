/**
 * The command line's interface to the outside: output, and exit codes.
 *
 * Invariants
 * - stdout carries results, stderr carries everything else.
 * - With `--json`, stdout is exactly one JSON document, whether the command succeeded or not. Node writes warnings to
 *   stderr, so a machine-readable error cannot be there.
 * - An error is printed once: its code, its message, and its remedy.
 * - Text has no control characters but newline and tab (`withoutControl`): much of it comes from a sandbox, and such a
 *   character could move the cursor and write over other lines. Bytes of commands pass unchanged (`write`).
 */

import { type ConfigProblem, isSandlotError, SandlotError } from "@sandlot/contract";
import { CommanderError } from "commander";
import type { Environment } from "../config/variables.ts";
import { Interruption } from "./interruption.ts";

export interface Terminal {
  /** Writes the text, without adding a newline. */
  out(text: string): void;
  error(text: string): void;
  /** Writes bytes; resolves when there is room for more, with whether the reader still exists. */
  write(stream: "stdout" | "stderr", bytes: Uint8Array): Promise<boolean>;
  /** Whether stderr is a terminal. */
  readonly isWatched: boolean;
  readonly stdin: NodeJS.ReadStream;
  size(): { readonly columns: number; readonly rows: number };
  /** Returns a cancel function. */
  onResize(listener: () => void): () => void;
  readonly environment: Environment;
}

/** Enough of a checkpoint's id for a person: commands take the beginning of one. */
export const ID_SHOWN = 12;

/** The exit codes. Part of the interface: scripts rely on them. */
export const EXIT_CODES = {
  ok: 0,
  /** The command was understood and failed; the error's code says why. */
  failed: 1,
  /** The command line itself was wrong; nothing was tried. */
  usage: 2,
  /** Of `exec`, as in `timeout` and `env`: the command ran out of time; or Sandlot could not run it. */
  timedOut: 124,
  sandlotFailed: 125,
  interrupted: 130,
  /** As after SIGPIPE: the reader of the output has stopped. */
  outputGone: 141,
} as const;

export function printJson(terminal: Terminal, value: unknown, indent = 2): void {
  // JSON leaves these as they are, and some terminals obey them.
  const text = JSON.stringify(value, null, indent).replace(
    /[\u007f-\u009f]/g,
    (character) => `\\u00${hexOf(character)}`,
  );
  terminal.out(`${text}\n`);
}

/** The same terminal, whose text has no control characters but newline and tab. */
export function withoutControl(terminal: Terminal): Terminal {
  const shown = (text: string) => text.replace(/[^\P{Cc}\n\t]/gu, escaped);
  return new Proxy(terminal, {
    get(target, name) {
      if (name === "out" || name === "error") return (text: string) => target[name](shown(text));
      return Reflect.get(target, name);
    },
  });
}

/** Text in one line, as a cell of a table. */
export function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, escaped);
}

function escaped(character: string): string {
  return `\\x${hexOf(character)}`;
}

function hexOf(character: string): string {
  return character.charCodeAt(0).toString(16).padStart(2, "0");
}

/** Prints a command's failure, and returns its exit code. */
export function printFailure(terminal: Terminal, failure: unknown, json: boolean): number {
  if (failure instanceof Interruption) {
    if (json) printJson(terminal, { interrupted: failure.signalName });
    else terminal.error(`${failure.message}; everything was closed.\n`);
    return failure.exitCode;
  }
  if (failure instanceof CommanderError) return printUsage(terminal, failure, json);
  const error = isSandlotError(failure) ? failure : unexpected(failure);
  if (json) printJson(terminal, { error });
  else terminal.error(textOf(error));
  // A stack helps with an unexpected error, and is noise for an expected one.
  if (error.code === "internal" && failure instanceof Error) terminal.error(`${failure.stack}\n`);
  return EXIT_CODES.failed;
}

function textOf(error: SandlotError): string {
  return `error ${error.code}: ${error.message}\n${listed(error)}  What to do: ${remedyOf(error)}\n`;
}

/** A remedy in the error's details is more precise than the general one. */
function remedyOf({ details, remedy }: SandlotError): string {
  return "fix" in details && typeof details.fix === "string" && details.fix !== "" ? details.fix : remedy;
}

/** A configuration can be wrong in several places, and all of them are listed. */
function listed(error: SandlotError): string {
  const problems = isSandlotError(error, "config_invalid") ? (error.details.problems ?? []) : [];
  return problems.length < 2 ? "" : problems.map((problem) => `  - ${showProblem(problem)}\n`).join("");
}

function showProblem({ path, problem, suggestion, line, column }: ConfigProblem): string {
  const where = line === undefined ? "" : `line ${line}, column ${column}: `;
  const meant = suggestion === undefined ? "" : `; did you mean ${suggestion}?`;
  return `${where}${path === "" ? "" : `${path} `}${problem}${meant}`;
}

/** Commander has already printed its own message, or the requested help. */
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
