/**
 * Preallocated files: created empty in the background, and filled during a request. Filling one takes less time than
 * creating one.
 *
 * Invariants
 * - A file is filled at most once, from its beginning, and only when it is a regular file that is empty and closed to
 *   others. It is never truncated: ext4 allocates blocks for a truncated file, and begins to write it, while it is
 *   being closed.
 * - While it is filled it has a temporary name that belongs to the filling process alone. It gets its final name by a
 *   rename.
 */

import { closeSync, constants, fstatSync, openSync, renameSync, writeSync } from "node:fs";
import { errnoOf, isMissing } from "../../world/disk-trouble.ts";

/** Opens any kind of file without following links or blocking. */
const OPEN_TO_FILL = constants.O_WRONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
/** The errors of a symbolic link, a directory, and a FIFO or a socket when opened like that. */
const NOT_PLAIN: readonly (string | undefined)[] = ["ELOOP", "EISDIR", "ENXIO"];

/** Creates an empty file where there is none. */
export function preallocate(path: string): void {
  closeSync(openSync(path, constants.O_CREAT | constants.O_EXCL, 0o600));
}

/** Fills a file that no other process fills; `false` when there is no preallocated one. */
export function fillPreallocated(path: string, text: string): boolean {
  const descriptor = openToFill(path);
  if (descriptor === null) return false;
  try {
    const stats = fstatSync(descriptor);
    if (!stats.isFile() || stats.size > 0 || (stats.mode & 0o077) !== 0) return false;
    const bytes = Buffer.from(text);
    for (let done = 0; done < bytes.length; ) done += writeSync(descriptor, bytes, done);
    return true;
  } finally {
    closeSync(descriptor);
  }
}

/** The same with several contenders: the file is renamed to the caller's own `draft`, which only one can do. */
export function claimPreallocated(path: string, draft: string, text: string): boolean {
  try {
    renameSync(path, draft);
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
  return fillPreallocated(draft, text);
}

function openToFill(path: string): number | null {
  try {
    return openSync(path, OPEN_TO_FILL);
  } catch (error) {
    if (isMissing(error) || NOT_PLAIN.includes(errnoOf(error))) return null;
    throw error;
  }
}
