/**
 * Trees that hold nothing a user might miss: only empty directories, empty files, and the link of a slot. They are removed
 * name by name with calls that a server refuses when there is more, so a wrong look can never cost a file.
 */

import { lstat, open, opendir, readlink, rmdir, unlink } from "node:fs/promises";
import { fdBytePath, fdPath, OPEN_DIRECTORY } from "../../../../host/descriptors.ts";
import { ACP_LINK, ACP_TARGET } from "../../../../host/workspaces/layout.ts";
import { errnoOf, isMissing } from "../../../../world/disk-trouble.ts";

/** More than a slot's mount points, or an empty workspace. */
const ENTRIES_MAX = 1_000;
const DEPTH_MAX = 16;

/** Removes the tree when it is bare. Otherwise returns false, and has removed at most empty directories and files. */
export async function removeBare(path: string): Promise<boolean> {
  const budget = { entries: ENTRIES_MAX };
  try {
    if (!(await isBare(path, DEPTH_MAX, budget))) return false;
    await clear(path, DEPTH_MAX);
    await rmdir(path);
    return true;
  } catch (error) {
    if (isMissing(error)) return true;
    // There was more than was seen, or it belongs to another account.
    if (["ENOTEMPTY", "EEXIST", "EACCES", "EPERM"].includes(errnoOf(error) ?? "")) return false;
    throw error;
  }
}

async function isBare(path: string | Buffer, depth: number, budget: { entries: number }): Promise<boolean> {
  if (depth <= 0) return false;
  const directory = await open(path, OPEN_DIRECTORY);
  try {
    for await (const { name } of await opendir(fdPath(directory.fd), { encoding: "latin1" })) {
      if (budget.entries-- <= 0) return false;
      const entry = fdBytePath(directory.fd, name);
      const stats = await lstat(entry);
      if (stats.isDirectory() ? await isBare(entry, depth - 1, budget) : await isScaffold(entry, name, stats)) continue;
      return false;
    }
    return true;
  } finally {
    await directory.close();
  }
}

async function isScaffold(
  path: Buffer,
  name: string,
  stats: { size: number; isFile(): boolean; isSymbolicLink(): boolean },
): Promise<boolean> {
  if (stats.isFile()) return stats.size === 0;
  return name === ACP_LINK && stats.isSymbolicLink() && (await readlink(path)) === ACP_TARGET;
}

async function clear(path: string | Buffer, depth: number): Promise<void> {
  const directory = await open(path, OPEN_DIRECTORY);
  try {
    for await (const { name } of await opendir(fdPath(directory.fd), { encoding: "latin1" })) {
      const entry = fdBytePath(directory.fd, name);
      if (!(await lstat(entry)).isDirectory()) await unlink(entry);
      else {
        if (depth > 0) await clear(entry, depth - 1);
        await rmdir(entry);
      }
    }
  } finally {
    await directory.close();
  }
}
