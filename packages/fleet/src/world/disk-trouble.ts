/**
 * What the errors of system calls mean.
 */

import { lstatSync, readdirSync, type Stats } from "node:fs";
import { constants } from "node:os";
import { SandlotError } from "@sandlot/contract";

/** Node has no word for a quota that is used up, only the number. */
const QUOTA_NUMBER = `Unknown system error -${constants.errno.EDQUOT}`;

/** The errno's name, such as `ENOENT`; `undefined` for what is no error of a system call. */
export function errnoOf(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "string") return undefined;
  return error.code === QUOTA_NUMBER ? "EDQUOT" : error.code;
}

export function isMissing(error: unknown): boolean {
  const errno = errnoOf(error);
  return errno === "ENOENT" || errno === "ENOTDIR";
}

/** Runs `call`; `undefined` when what it is about does not exist. */
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

/** What is at a path; `undefined` when nothing is. Making an error for that, the usual answer, takes longer than the look. */
export function statIfThere(path: string): Stats | undefined {
  return unlessMissing(() => lstatSync(path, { throwIfNoEntry: false }));
}

/** The codes that carry a path and nothing else. */
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
  // The kernel says so where a symbolic link stands and must not be followed.
  ELOOP: "it is a symbolic link, or leads through one",
  // Of a FIFO that nobody reads, a socket, or a device that is not there.
  ENXIO: "it is not a plain file",
};

/** The same trouble in our words. What we have no word for stays as it is. */
export function inOurWords(error: unknown, path: string): unknown {
  const errno = errnoOf(error) ?? "";
  const code = CODES[errno];
  if (code !== undefined) return new SandlotError(code, { path }, { cause: error });
  const problem = SENTENCES[errno];
  return problem === undefined ? error : new SandlotError("invalid_path", { path, problem }, { cause: error });
}

/** The same for a step that is no file call: only that there is no room, or no writing, is for others to hear. */
export function noRoomInOurWords(error: unknown, path: string): unknown {
  return ["ENOSPC", "EDQUOT", "EROFS"].includes(errnoOf(error) ?? "") ? inOurWords(error, path) : error;
}
