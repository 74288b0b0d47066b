/** The meaning of errors from system calls. */

import { lstatSync, readdirSync, type Stats } from "node:fs";
import { constants } from "node:os";
import { SandlotError } from "@sandlot/contract";

/** Node has no name for an exceeded quota, only the number. */
const QUOTA_NUMBER = `Unknown system error -${constants.errno.EDQUOT}`;

/** The errno's name, such as `ENOENT`; `undefined` when it is no error of a system call. */
export function errnoOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "string") return undefined;
  return error.code === QUOTA_NUMBER ? "EDQUOT" : error.code;
}

export function isMissing(error: unknown): boolean {
  const errno = errnoOf(error);
  return errno === "ENOENT" || errno === "ENOTDIR";
}

/** Runs `call`; `undefined` when its file does not exist. */
export function unlessMissing<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** The names in a directory; none when there is no such directory. */
export function namesIn(directory: string): readonly string[] {
  return unlessMissing(() => readdirSync(directory)) ?? [];
}

/** The stat of a path; `undefined` when it is missing. Creating an error for that takes longer than the call. */
export function statIfThere(path: string): Stats | undefined {
  return unlessMissing(() => lstatSync(path, { throwIfNoEntry: false }));
}

/** The codes whose only detail is a path. */
type PathCode =
  | "file_not_found"
  | "file_exists"
  | "not_a_directory"
  | "is_a_directory"
  | "directory_not_empty"
  | "permission_denied"
  | "read_only_path"
  | "disk_limit_exceeded";

const CODES: Readonly<Record<string, PathCode>> = {
  ENOENT: "file_not_found",
  EEXIST: "file_exists",
  ENOTDIR: "not_a_directory",
  EISDIR: "is_a_directory",
  ENOTEMPTY: "directory_not_empty",
  EACCES: "permission_denied",
  EPERM: "permission_denied",
  EROFS: "read_only_path",
  ENOSPC: "disk_limit_exceeded",
  EDQUOT: "disk_limit_exceeded",
};

const SENTENCES: Readonly<Record<string, string>> = {
  ENAMETOOLONG: "a name in it is too long",
  // The kernel's error for a symbolic link that must not be followed.
  ELOOP: "it is a symbolic link, or leads through one",
  // A FIFO without a reader, a socket, or a missing device.
  ENXIO: "it is not a plain file",
};

/** The same error as one of the contract. An unknown error is unchanged. */
export function inOurWords(error: unknown, path: string): unknown {
  const errno = errnoOf(error) ?? "";
  const code = CODES[errno];
  if (code !== undefined) return new SandlotError(code, { path }, { cause: error });
  const problem = SENTENCES[errno];
  return problem === undefined ? error : new SandlotError("invalid_path", { path, problem }, { cause: error });
}

/** The same for a step that is no file call: only "no space" and "read-only" are translated. */
export function noRoomInOurWords(error: unknown, path: string): unknown {
  return ["ENOSPC", "EDQUOT", "EROFS"].includes(errnoOf(error) ?? "") ? inOurWords(error, path) : error;
}
