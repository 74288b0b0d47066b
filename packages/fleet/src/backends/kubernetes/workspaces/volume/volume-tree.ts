/** A workspace's directory on a shared volume: moved by one rename, and marked before it is sent to a slot. */

import { chmod, open, rename } from "node:fs/promises";
import { fdPath, OPEN_DIRECTORY, OPEN_NEW } from "../../../../host/descriptors.ts";
import type { Trash } from "../../../../host/workspaces/trash.ts";
import { errnoOf, isMissing } from "../../../../world/disk-trouble.ts";
import type { World } from "../../../../world/world.ts";
import { isTaken, statOrNull } from "./fresh-names.ts";
import { ARRIVED } from "./layout.ts";

/**
 * `done`, also when the answer of an earlier try was lost: the directory of this inode is at the target. `missing`: it is
 * at neither end, or the target's parent is gone. `taken`: the target was there before. `other`: another directory had the
 * name, and is at the target now.
 */
export async function moveTo(
  from: string | Buffer,
  to: string,
  inode: bigint,
): Promise<"done" | "missing" | "taken" | "other"> {
  try {
    await renameOwned(from, to);
  } catch (error) {
    if (isTaken(error)) return "taken";
    if (!isMissing(error)) throw error;
    return (await statOrNull(to))?.ino === inode ? "done" : "missing";
  }
  // A sandbox may have put another directory in its place between the look and the move.
  return (await statOrNull(to))?.ino === inode ? "done" : "other";
}

async function renameOwned(from: string | Buffer, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if (errnoOf(error) !== "EACCES") throw error;
    // A sandbox may remove its own rights to the directory, and without them it cannot change its parent.
    const directory = await open(from, OPEN_DIRECTORY);
    try {
      await chmod(fdPath(directory.fd), 0o700);
    } finally {
      await directory.close();
    }
    await rename(from, to);
  }
}

/** Writes the file that shows the arrival. Whatever has its name is replaced, and never followed. */
export async function markArrival(workspace: string, nonce: string, trash: Trash, world: World): Promise<void> {
  const directory = await open(workspace, OPEN_DIRECTORY);
  try {
    const draft = fdPath(directory.fd, `${ARRIVED}-${world.randomHex(8)}`);
    const file = await open(draft, OPEN_NEW, 0o600);
    let inode: bigint;
    try {
      await file.writeFile(nonce);
      inode = (await file.stat({ bigint: true })).ino;
    } finally {
      await file.close();
    }
    const target = fdPath(directory.fd, ARRIVED);
    if ((await moveTo(draft, target, inode)) === "done") return;
    // A directory has the name.
    trash.throwAway(target, "planted");
    await rename(draft, target);
  } finally {
    await directory.close();
  }
}
