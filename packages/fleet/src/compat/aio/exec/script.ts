/**
 * A command as the server gets it: one text for bash, with the caller's command last.
 *
 * A line with a random number reports a missing directory, so the command cannot forge it.
 */

import { constants } from "node:os";
import { SandlotError, SYSTEM_PATH } from "@sandlot/contract";
import { quoted } from "../checks.ts";
import type { CommandStatus } from "../wire/schemas.ts";

export interface Script {
  readonly text: string;
  /** Throws when the script reported a failure instead of running the command. */
  check(stderr: string): void;
}

export function scriptOf(
  command: string | readonly string[],
  options: {
    readonly cwd: string;
    readonly stdin: "open" | "none" | { readonly path: string };
    readonly nonce: string;
  },
): Script {
  const { cwd, stdin, nonce } = options;
  const directory = quoted(cwd);
  const lines = [
    `cd -- ${directory} 2>/dev/null || { if [ -e ${directory} ]; then echo ${nonce}not_a_directory; else echo ${nonce}file_not_found; fi >&2; exit 1; }`,
    ...inputOf(stdin),
    typeof command === "string" ? command : `exec ${command.map(quoted).join(" ")}`,
  ];
  return {
    text: lines.join("\n"),
    check: (stderr) => {
      for (const code of ["not_a_directory", "file_not_found"] as const)
        if (stderr === `${nonce}${code}\n`) throw new SandlotError(code, { path: cwd });
    },
  };
}

function inputOf(stdin: "open" | "none" | { readonly path: string }): readonly string[] {
  if (stdin === "open") return [];
  if (stdin === "none") return ["exec </dev/null"];
  // An open file can be read to its end after its name is removed.
  return [`exec <${quoted(stdin.path)}; PATH=${SYSTEM_PATH} rm -f -- ${quoted(stdin.path)}`];
}

export interface Outcome {
  readonly status: "completed" | "timed_out" | "killed";
  readonly exitCode: number | null;
  readonly signal: string | null;
}

const SIGNAL_NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(constants.signals).map(([name, number]) => [number, name] as const),
);

/** `null` while it runs. A status below 0 is the number of a signal, as in Python. */
export function outcomeOf(status: CommandStatus, exitCode: number | null | undefined): Outcome | null {
  if (status === "pending" || status === "running") return null;
  const signal = exitCode != null && exitCode < 0 ? (SIGNAL_NAMES.get(-exitCode) ?? null) : null;
  if (status !== "completed") return { status, exitCode: null, signal };
  if (exitCode != null && exitCode < 0) return { status: "killed", exitCode: null, signal };
  return { status, exitCode: exitCode ?? null, signal: null };
}
