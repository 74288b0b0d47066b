/**
 * Finds a directory by its inode below another one, wherever a sandbox has renamed it to. By descriptors, without
 * following links; names are bytes. The search has a limit: what it does not find goes to quarantine.
 */

import { type FileHandle, open, opendir } from "node:fs/promises";
import { fdBytePath, fdPath, OPEN_DIRECTORY } from "../../../../host/descriptors.ts";
import { errnoOf, isMissing } from "../../../../world/disk-trouble.ts";
import { statOrNull } from "./fresh-names.ts";

const ENTRIES_MAX = 10_000;
const DEPTH_MAX = 16;

/** Calls `use` with a path that is valid during the call; `undefined` when the directory was not found. */
export function findInode<T>(
  root: string,
  wanted: { readonly inode: bigint; readonly device: bigint },
  use: (path: Buffer) => Promise<T>,
): Promise<T | undefined> {
  return search(root, wanted, use, { entries: ENTRIES_MAX, depth: DEPTH_MAX });
}

async function search<T>(
  path: string | Buffer,
  wanted: { readonly inode: bigint; readonly device: bigint },
  use: (path: Buffer) => Promise<T>,
  budget: { entries: number; depth: number },
): Promise<T | undefined> {
  const directory = await openDirectory(path);
  if (directory === null) return undefined;
  try {
    const below: Buffer[] = [];
    for await (const entry of await opendir(fdPath(directory.fd), { encoding: "latin1" })) {
      if (budget.entries-- <= 0) return undefined;
      // Some servers do not tell the type.
      if (!entry.isDirectory() && (entry.isFile() || entry.isSymbolicLink())) continue;
      const at = fdBytePath(directory.fd, entry.name);
      const stats = await statOrNull(at);
      if (stats?.isDirectory() !== true || stats.dev !== wanted.device) continue;
      if (stats.ino === wanted.inode) return await use(at);
      below.push(at);
    }
    if (budget.depth <= 0) return undefined;
    budget.depth--;
    for (const at of below) {
      const found = await search(at, wanted, use, budget);
      if (found !== undefined) return found;
    }
    budget.depth++;
    return undefined;
  } catch (error) {
    // A sandbox may have made it unreadable.
    if (errnoOf(error) === "EACCES") return undefined;
    throw error;
  } finally {
    await directory.close();
  }
}

async function openDirectory(path: string | Buffer): Promise<FileHandle | null> {
  try {
    return await open(path, OPEN_DIRECTORY);
  } catch (error) {
    if (isMissing(error) || errnoOf(error) === "EACCES") return null;
    throw error;
  }
}
