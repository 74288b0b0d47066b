/**
 * The place of a thread's checkpoints (`host/checkpoints/layout.ts` has the rest), and their removal in the same step as
 * the workspace's.
 *
 * Invariants
 * - The mark says `due` before the records are gone: a crash in between leaves a collection that finds nothing.
 * - The mark is one file that changes its name, so that a purge works on a full disk. A collector names it `collecting`
 *   while it works and `quiet` afterwards; a purge meanwhile names it `due` again, and the collector leaves it so.
 * - One rename takes all records of the thread away. A taker that runs meanwhile cannot commit: its directory is gone.
 */

import { hash } from "node:crypto";
import { renameSync } from "node:fs";
import { join } from "node:path";
import type { ThreadKey, UserId } from "@sandlot/contract";
import { statIfThere, unlessMissing } from "../../world/disk-trouble.ts";
import type { Trash } from "./trash.ts";

/** The names of a store's mark. */
export const MARK = { quiet: "mark.quiet", due: "mark.due", collecting: "mark.collecting" } as const;

/** The user's directory: a hash, so that a name on the disk tells nothing. */
export function userKeyOf(user: UserId): string {
  return hash("sha256", `user\n${user}`).slice(0, 32);
}

export function checkpointsOf(root: string, user: UserId, thread: ThreadKey): string {
  return join(root, "checkpoints", userKeyOf(user), "threads", thread);
}

/** Under the thread's lock. */
export function throwCheckpointsAway(root: string, trash: Trash, user: UserId, thread: ThreadKey): void {
  const directory = checkpointsOf(root, user, thread);
  if (statIfThere(directory) === undefined) return;
  const store = join(root, "checkpoints", userKeyOf(user));
  for (const name of [MARK.quiet, MARK.collecting])
    unlessMissing(() => renameSync(join(store, name), join(store, MARK.due)));
  trash.throwAway(directory, thread);
}
