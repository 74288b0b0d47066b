/**
 * What this machine's file system refuses, as one line about the path that was named on the command line. Codes such as
 * `file_not_found` are about files of a sandbox, and their remedies would lead there.
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

/** The same trouble in words about `path`. What is no refusal of the file system stays as it is. */
function hostTrouble(error: unknown, field: string, path: string): unknown {
  const sentence = SENTENCES[errnoOf(error) ?? ""];
  if (sentence === undefined) return error;
  return new SandlotError("invalid_request", { field, problem: `${path} ${sentence}` }, { cause: error });
}

/** Runs `call`, which works on `path`; what the file system refuses is told in our words. */
export async function onThisMachine<T>(field: string, path: string, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    throw hostTrouble(error, field, path);
  }
}
