/**
 * How failures look on a shell's standard error: the sentences that every Unix uses for them.
 */

import { type ErrorCode, isErrorCode, isSandlotError } from "@sandlot/contract";
import { Killed, TooManyProcesses } from "../exec/machine.ts";
import { BrokenPipe, type Sink } from "../exec/streams.ts";
import { ShellError } from "./state.ts";
import { Unsupported } from "./syntax.ts";

const SENTENCES: Readonly<Partial<Record<ErrorCode, string>>> = {
  file_not_found: "No such file or directory",
  file_exists: "File exists",
  file_too_large: "File too large",
  not_a_directory: "Not a directory",
  is_a_directory: "Is a directory",
  directory_not_empty: "Directory not empty",
  read_only_path: "Permission denied",
  invalid_path: "Invalid argument",
};

/** Arguments that a command does not understand. Ends it with status 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** The message for an error of the tree, or `null` for any other error. */
export function sentenceOf(error: unknown): string | null {
  if (!isSandlotError(error)) return null;
  return (isErrorCode(error.code) ? SENTENCES[error.code] : undefined) ?? error.message;
}

/** Writes why a command failed and returns its status. Any other error is thrown on. */
export async function describeFailure(error: unknown, name: string, stderr: Sink): Promise<number> {
  if (error instanceof Killed || error instanceof BrokenPipe) throw error;
  const print = (text: string) => stderr.write(new TextEncoder().encode(`${text}\n`));
  const write = (text: string) => print(`${name}: ${text}`);
  if (error instanceof Unsupported) {
    await print(error.message);
    return 2;
  }
  if (isSandlotError(error)) {
    const details = error.details as { path?: string };
    await write(details.path === undefined ? error.message : `${details.path}: ${sentenceOf(error)}`);
    return 1;
  }
  if (error instanceof TooManyProcesses) {
    await write(error.message);
    return 254;
  }
  if (error instanceof UsageError || error instanceof ShellError) {
    await write(error.message);
    return 2;
  }
  throw error;
}
