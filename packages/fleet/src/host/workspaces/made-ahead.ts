/**
 * Files that are made where nobody waits, empty, and filled when somebody does: filling one takes less than making one.
 *
 * Invariants
 * - One is filled at most once, from its beginning, and only when it is a plain file that is empty and closed to others.
 *   It is never emptied: ext4 finds blocks for a file that was emptied, and begins to write it, while it is being closed.
 * - While it is filled it bears a name under which nobody takes it for what it becomes, and whoever fills it has that
 *   name for itself. It gets its own name by a rename.
 */

import { closeSync, constants, fstatSync, openSync, renameSync, writeSync } from "node:fs";
import { errnoOf, isMissing } from "../../world/disk-trouble.ts";

/** Whatever stands under the name: nothing is followed, and nothing is waited for. */
const OPEN_TO_FILL = constants.O_WRONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
/** What a symbolic link, a directory, and a FIFO or a socket say when they are opened like that. */
const NOT_PLAIN: readonly (string | undefined)[] = ["ELOOP", "EISDIR", "ENXIO"];

/** Makes an empty file where nothing is. */
export function makeAhead(path: string): void {
  closeSync(openSync(path, constants.O_CREAT | constants.O_EXCL, 0o600));
}

/** Fills a file that nobody else fills; `false` when there is none that was made for that. */
export function fillAhead(path: string, text: string): boolean {
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

/** The same of a file that others may want as well: it is renamed to the caller's own `draft`, which one caller can do. */
export function takeAhead(path: string, draft: string, text: string): boolean {
  try {
    renameSync(path, draft);
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
  return fillAhead(draft, text);
}

function openToFill(path: string): number | null {
  try {
    return openSync(path, OPEN_TO_FILL);
  } catch (error) {
    if (isMissing(error) || NOT_PLAIN.includes(errnoOf(error))) return null;
    throw error;
  }
}
