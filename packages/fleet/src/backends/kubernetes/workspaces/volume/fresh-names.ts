/**
 * Reads of a volume whose server other machines change too.
 *
 * A network file system's client may answer a listing from its cache for up to a minute. A change that it makes itself
 * shows it that the directory is another one by now. So before a listing that decides something, the directory gets new
 * times: one request, and the listing after it is the server's.
 */

import { type BigIntStats, constants } from "node:fs";
import { type FileHandle, lstat, open, readdir, utimes } from "node:fs/promises";
import { dirname } from "node:path";
import { errnoOf, isMissing } from "../../../../world/disk-trouble.ts";

/** Makes the next read of a directory the server's. False when there is no such directory. */
export async function refresh(directory: string, wallMs: number): Promise<boolean> {
  const touch = (path: string) => ifThere(() => utimes(path, wallMs / 1000, wallMs / 1000));
  // A client may also remember that a name is missing.
  return (await touch(directory)) || ((await touch(dirname(directory))) && touch(directory));
}

/** The names in a directory of the fleet's own, from the server; `null` when there is no such directory. */
export async function freshNames(directory: string, wallMs: number): Promise<readonly string[] | null> {
  if (!(await refresh(directory, wallMs))) return null;
  try {
    return await readdir(directory);
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

/** The stat of a path itself; `null` when there is nothing. */
export async function statOrNull(path: string | Buffer): Promise<BigIntStats | null> {
  try {
    return await lstat(path, { bigint: true });
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

/** Creates an empty file, unless there is one. */
export async function record(path: string): Promise<void> {
  let file: FileHandle | undefined;
  try {
    file = await open(path, constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY | constants.O_NOFOLLOW, 0o600);
  } catch (error) {
    if (errnoOf(error) !== "EEXIST") throw error;
  } finally {
    await file?.close();
  }
}

/** Runs `call`; whether its file existed. */
export async function ifThere(call: () => Promise<unknown>): Promise<boolean> {
  try {
    await call();
    return true;
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}

/** A rename was refused because the target is there: a directory with entries, or no directory at all. */
export function isTaken(error: unknown): boolean {
  return ["ENOTEMPTY", "EEXIST", "ENOTDIR", "EISDIR"].includes(errnoOf(error) ?? "");
}
