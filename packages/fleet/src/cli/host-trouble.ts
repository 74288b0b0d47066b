/**
 * Errors of this machine's file system, as one line about the path on the command line. Codes such as `file_not_found`
 * are about files of a sandbox, and their remedies would be wrong.
 */

import { SandlotError } from "@sandlot/contract";
import { errnoOf } from "../world/disk-trouble.ts";

const SENTENCES: Readonly<Record<string, string>> = {
  ENOENT: "does not exist",
  EEXIST: "exists already and is left alone",
  ENOTDIR: "leads through something that is not a directory",
  EISDIR: "is a directory",
  EACCES: "is closed to this account",
  EPERM: "is closed to this account",
  EROFS: "is on a read-only file system",
  ENOSPC: "cannot be written: the disk is full",
  EDQUOT: "cannot be written: this account's share of the disk is full",
  ENAMETOOLONG: "has too long a name",
  ELOOP: "leads through too many symbolic links",
  EMFILE: "cannot be opened: this process has too many open files",
  EIO: "cannot be read or written: the disk reports an error",
};

/** The same error with a text about `path`. An error that is not of the file system is unchanged. */
function hostTrouble(error: unknown, field: string, path: string): unknown {
  const sentence = SENTENCES[errnoOf(error) ?? ""];
  if (sentence === undefined) return error;
  return new SandlotError("invalid_request", { field, problem: `${path} ${sentence}` }, { cause: error });
}

/** Runs `call`, which works on `path`, and translates errors of the file system. */
export async function onThisMachine<T>(field: string, path: string, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    throw hostTrouble(error, field, path);
  }
}
