/**
 * Measures how much a directory tree takes on its disk, as the file system counts: allocated blocks, every hard-linked
 * file once.
 *
 * Invariants
 * - The tree is walked by descriptors: each directory is opened relative to its parent. Moving an open directory
 *   changes nothing, and no path is too long. The tree's content is hostile: a sandbox writes it.
 * - Neither symbolic links nor mounts are followed. Names are bytes, since a name need not be text.
 * - The walk ends as soon as it has seen more files than are allowed, or is deeper than `DEPTH_MAX`, so its cost has a
 *   limit.
 * - An entry that cannot be read makes the result `complete: false`, never a smaller number. An entry that vanishes
 *   meanwhile makes it `settled: false`: it may have moved to a visited directory.
 */

import { constants, type Stats } from "node:fs";
import { type FileHandle, lstat, open, opendir, readdir, readFile, readlink, stat } from "node:fs/promises";
import { fdBytePath, fdPath } from "../../descriptors.ts";

export interface DiskUsage {
  readonly bytes: number;
  /** Files, directories and all other named entries. */
  readonly files: number;
  /** `false` when something could not be measured, or there was more than `filesMax`. */
  readonly complete: boolean;
}

export interface MeasuredTree extends DiskUsage {
  /** `false` when something was moved or removed meanwhile. */
  readonly settled: boolean;
}

const BLOCK_BYTES = 512;
/** How many files are read at once: enough to keep the thread pool busy, few enough for others to get a turn. */
const BATCH = 64;
/** Each level holds a descriptor. Deeper than any tool goes. */
const DEPTH_MAX = 256;
/** Descriptors checked per process. With more the result is not complete. */
const DESCRIPTORS_MAX = 4_096;
const OPEN_LISTED = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

export async function measureTree(root: string, filesMax: number): Promise<MeasuredTree> {
  const top = await lstat(root).catch(() => null);
  if (top === null) return { bytes: 0, files: 0, complete: true, settled: true };
  const walk = new Walk(top.dev, filesMax);
  await walk.enter(root, 0);
  const { bytes, files, complete, settled } = walk;
  return { bytes, files, complete, settled };
}

class Walk {
  bytes = 0;
  files = 0;
  complete = true;
  settled = true;
  readonly #device: number;
  readonly #filesMax: number;
  readonly #linked = new Set<number>();

  constructor(device: number, filesMax: number) {
    this.#device = device;
    this.#filesMax = filesMax;
  }

  async enter(path: string | Buffer, depth: number): Promise<void> {
    let handle: FileHandle | undefined;
    try {
      handle = await open(path, OPEN_LISTED);
      if (depth > DEPTH_MAX) this.complete = false;
      else await this.#entriesOf(handle, depth);
    } catch (error) {
      this.#note(error);
    } finally {
      await handle?.close();
    }
  }

  async #entriesOf(directory: FileHandle, depth: number): Promise<void> {
    const below: string[] = [];
    let batch: string[] = [];
    for await (const { name } of await opendir(fdPath(directory.fd), { encoding: "latin1", bufferSize: BATCH })) {
      batch.push(name);
      if (batch.length < BATCH) continue;
      below.push(...(await this.#look(directory, batch)));
      if (!this.complete) return;
      batch = [];
    }
    below.push(...(await this.#look(directory, batch)));
    for (const name of below) {
      if (!this.complete) return;
      await this.enter(fdBytePath(directory.fd, name), depth + 1);
    }
  }

  /** Counts the entries, and returns those that are directories. */
  async #look(directory: FileHandle, names: readonly string[]): Promise<string[]> {
    const found = await Promise.all(names.map((name) => this.#stat(fdBytePath(directory.fd, name))));
    const directories = names.filter((_, at) => this.#count(found[at] ?? null));
    if (this.files > this.#filesMax) this.complete = false;
    return directories;
  }

  async #stat(path: Buffer): Promise<Stats | null> {
    try {
      return await lstat(path);
    } catch (error) {
      this.#note(error);
      return null;
    }
  }

  /** Whether it is a directory to enter. */
  #count(found: Stats | null): boolean {
    if (found === null || found.dev !== this.#device) return false;
    const isDirectory = found.isDirectory();
    if (found.nlink > 1 && !isDirectory) {
      if (this.#linked.has(found.ino)) return false;
      this.#linked.add(found.ino);
    }
    this.files += 1;
    this.bytes += found.blocks * BLOCK_BYTES;
    return isDirectory;
  }

  #note(error: unknown): void {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR" || code === "ELOOP") this.settled = false;
    else this.complete = false;
  }
}

/** What these processes keep open or mapped on the device of `root` after the last name was removed. */
export async function measureUnlinked(
  root: string,
  pids: readonly number[],
): Promise<Pick<DiskUsage, "bytes" | "complete">> {
  const top = await stat(root).catch(() => null);
  if (top === null) return { bytes: 0, complete: true };
  const held = new Map<number, number>();
  let complete = true;
  for (const pid of pids) {
    const descriptors = (await readdir(`/proc/${pid}/fd`).catch(() => [])).map((fd) => `/proc/${pid}/fd/${fd}`);
    if (descriptors.length > DESCRIPTORS_MAX) complete = false;
    const mapped = await mappedUnlinked(pid);
    for (const path of [...descriptors.slice(0, DESCRIPTORS_MAX), ...mapped]) {
      if (!(await readlink(path).catch(() => "")).endsWith(" (deleted)")) continue;
      const found = await stat(path).catch(() => null);
      if (found?.isFile() === true && found.nlink === 0 && found.dev === top.dev)
        held.set(found.ino, found.blocks * BLOCK_BYTES);
    }
  }
  return { bytes: [...held.values()].reduce((sum, bytes) => sum + bytes, 0), complete };
}

/** Only root can read them; for others only open files count. */
async function mappedUnlinked(pid: number): Promise<readonly string[]> {
  if (process.getuid?.() !== 0) return [];
  const maps = await readFile(`/proc/${pid}/maps`, "latin1").catch(() => "");
  if (!maps.includes(" (deleted)\n")) return [];
  const ranges = maps.split("\n").flatMap((line) => (line.endsWith(" (deleted)") ? [line.split(" ")[0] ?? ""] : []));
  return ranges
    .slice(0, DESCRIPTORS_MAX)
    .map((range) => `/proc/${pid}/map_files/${range.replace(/\b0+(?=[0-9a-f])/g, "")}`);
}
