/**
 * How much a directory tree takes on its disk, as the file system counts: allocated blocks, every hard-linked file once.
 *
 * Invariants
 * - Nothing is followed: neither symbolic links nor mounts. A sandbox writes what is measured here.
 * - The walk ends as soon as it has seen more files than are allowed, so its cost has a limit.
 * - What cannot be looked at (names too long to open) makes the answer `complete: false`, never a smaller number.
 */

import { constants, type Stats } from "node:fs";
import { lstat, open, readdir, readlink, stat } from "node:fs/promises";
import { join } from "node:path";

export interface DiskUsage {
  readonly bytes: number;
  /** Files, directories and everything else that has a name. */
  readonly files: number;
  /** `false` when something could not be measured, or there was more than `filesMax`. */
  readonly complete: boolean;
}

const BLOCK_BYTES = 512;
/** How many files are asked for at once: enough to keep the thread pool busy, few enough for others to get a turn. */
const BATCH = 64;
/** Descriptors looked at per process. Beyond, a process is taken to hold nothing more. */
const DESCRIPTORS_MAX = 1_024;

export async function measureTree(root: string, filesMax: number): Promise<DiskUsage> {
  const walk = { bytes: 0, files: 0, complete: true };
  const linked = new Set<number>();
  const top = await lstat(root).catch(() => null);
  if (top === null) return walk;
  const pending = [root];
  for (let directory = pending.pop(); directory !== undefined; directory = pending.pop()) {
    const names = await namesIn(directory, walk);
    for (let from = 0; from < names.length; from += BATCH) {
      if (walk.files > filesMax) return { ...walk, complete: false };
      const paths = names.slice(from, from + BATCH).map((name) => join(directory, name));
      for (const [path, found] of await Promise.all(paths.map((path) => look(path, walk)))) {
        if (found === null || found.dev !== top.dev) continue;
        if (found.nlink > 1 && !found.isDirectory()) {
          if (linked.has(found.ino)) continue;
          linked.add(found.ino);
        }
        walk.files += 1;
        walk.bytes += found.blocks * BLOCK_BYTES;
        if (found.isDirectory()) pending.push(path);
      }
    }
  }
  return walk;
}

interface Walk {
  complete: boolean;
}

/** The directory itself is opened without following, so that one that was replaced by a link is not read. */
async function namesIn(directory: string, walk: Walk): Promise<readonly string[]> {
  try {
    const handle = await open(directory, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    try {
      return await readdir(`/proc/self/fd/${handle.fd}`);
    } finally {
      await handle.close();
    }
  } catch (error) {
    noteUnlessGone(error, walk);
    return [];
  }
}

async function look(path: string, walk: Walk): Promise<[string, Stats | null]> {
  try {
    return [path, await lstat(path)];
  } catch (error) {
    noteUnlessGone(error, walk);
    return [path, null];
  }
}

/** Files come and go while they are counted; that is no gap. */
function noteUnlessGone(error: unknown, walk: Walk): void {
  const { code } = error as NodeJS.ErrnoException;
  if (code !== "ENOENT" && code !== "ENOTDIR" && code !== "ELOOP") walk.complete = false;
}

/** What these processes keep on the device of `root` after its last name was removed. */
export async function measureUnlinked(root: string, pids: readonly number[]): Promise<number> {
  const top = await stat(root).catch(() => null);
  if (top === null) return 0;
  const held = new Map<number, number>();
  for (const pid of pids) {
    const descriptors = await readdir(`/proc/${pid}/fd`).catch(() => []);
    for (const descriptor of descriptors.slice(0, DESCRIPTORS_MAX)) {
      const path = `/proc/${pid}/fd/${descriptor}`;
      if (!(await readlink(path).catch(() => "")).endsWith(" (deleted)")) continue;
      const found = await stat(path).catch(() => null);
      if (found?.isFile() === true && found.nlink === 0 && found.dev === top.dev)
        held.set(found.ino, found.blocks * BLOCK_BYTES);
    }
  }
  return [...held.values()].reduce((sum, bytes) => sum + bytes, 0);
}
