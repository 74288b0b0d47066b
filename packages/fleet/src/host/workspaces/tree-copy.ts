/**
 * Copies a workspace for another thread. The source is walked by descriptors, because a sandbox may be changing it; the
 * copy is written out of every sandbox's reach.
 *
 * The home is not copied: the new thread begins with an empty one, because a home with installed programs is mostly
 * links, and belongs to its thread.
 *
 * Skipped, and listed: symbolic links (in another thread they would point at other things), everything that is no
 * regular file or directory, and files that the fleet's own account may not read. Files that vanish meanwhile are
 * ignored.
 */

import { constants, type Stats } from "node:fs";
import { chmod, chown, copyFile, type FileHandle, lstat, mkdir, open, opendir } from "node:fs/promises";
import { join } from "node:path";
import { HOME_DIRECTORY, SandlotError, WORKSPACE_ROOT } from "@sandlot/contract";
import { errnoOf, isMissing } from "../../world/disk-trouble.ts";
import { isDraft } from "../../world/drafts.ts";
import { fdPath, OPEN_ANY, OPEN_DIRECTORY, OPEN_READ } from "../descriptors.ts";
import type { Account } from "./tree.ts";

export interface CopyOutcome {
  readonly fileCount: number;
  readonly sizeBytes: number;
  /** Relative to the workspace. */
  readonly skipped: readonly string[];
}

/** Disk limits of the thread that gets the copy. */
export interface CopyLimits {
  readonly maxBytes: number;
  readonly maxFiles: number;
}

/** More is refused as a whole: a copy is one request, and its caller waits. */
const ENTRIES_MAX = 200_000;
/** Each level holds a descriptor. */
const DEPTH_MAX = 128;
const SKIPPED_TOLD_MAX = 1_000;

export async function copyWorkspace(
  root: number,
  to: string,
  account: Account,
  limits: CopyLimits = NO_LIMITS,
): Promise<CopyOutcome> {
  const copy = new Copy(account, limits);
  await copy.entriesOf(root, to, "", 0);
  return copy;
}

const NO_LIMITS: CopyLimits = { maxBytes: Number.POSITIVE_INFINITY, maxFiles: Number.POSITIVE_INFINITY };

class Copy implements CopyOutcome {
  fileCount = 0;
  sizeBytes = 0;
  readonly skipped: string[] = [];
  readonly #account: Account;
  readonly #limits: CopyLimits;
  #entryCount = 0;

  constructor(account: Account, limits: CopyLimits) {
    this.#account = account;
    this.#limits = limits;
  }

  async entriesOf(from: number, to: string, path: string, depth: number): Promise<void> {
    if (depth > DEPTH_MAX) throw tooDeep();
    for await (const { name } of await opendir(fdPath(from))) {
      if (isDraft(name) || (depth === 0 && name === HOME_DIRECTORY)) continue;
      if (++this.#entryCount > ENTRIES_MAX)
        throw new SandlotError("too_many_files", { what: "The workspace", max: ENTRIES_MAX });
      const below = path === "" ? name : `${path}/${name}`;
      if (this.#entryCount > this.#limits.maxFiles) throw overBudget(below);
      try {
        await this.#entry(fdPath(from, name), join(to, name), below, depth);
      } catch (error) {
        if (errnoOf(error) === "EACCES") this.#skip(below);
        // The source is walked by descriptors; the copy has a path, which may be too long before it is too deep.
        else if (errnoOf(error) === "ENAMETOOLONG") throw tooDeep("its paths are too long to be copied");
        else if (!isMissing(error)) throw error;
      }
    }
  }

  async #entry(from: string, to: string, path: string, depth: number): Promise<void> {
    const node = await open(from, OPEN_ANY);
    try {
      const stats = await node.stat();
      if (stats.isDirectory()) await this.#directory(node, to, path, depth, stats.mode);
      else if (stats.isFile()) await this.#file(node, to, path, stats);
      else this.#skip(path);
    } finally {
      await node.close();
    }
  }

  async #directory(node: FileHandle, to: string, path: string, depth: number, mode: number): Promise<void> {
    // Opened again as a directory, so that a rights problem is this directory's and not its entries'.
    const directory = await open(fdPath(node.fd), OPEN_DIRECTORY & ~constants.O_NOFOLLOW);
    try {
      await mkdir(to, 0o700).catch((error: unknown) => {
        // The standard directories of a workspace exist already.
        if (errnoOf(error) !== "EEXIST") throw error;
      });
      await this.entriesOf(directory.fd, to, path, depth + 1);
      await this.#settle(to, mode);
    } finally {
      await directory.close();
    }
  }

  async #file(node: FileHandle, to: string, path: string, { mode, size }: Stats): Promise<void> {
    // Its length, not its allocated size: a copy has no holes.
    if (this.sizeBytes + size > this.#limits.maxBytes) throw overBudget(path);
    // The descriptor is opened again for reading: it is the file that was checked.
    const file = await open(fdPath(node.fd), OPEN_READ);
    try {
      await copyFile(fdPath(file.fd), to, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
      await this.#settle(to, mode);
    } finally {
      await file.close();
    }
    this.sizeBytes += (await lstat(to)).size;
    this.fileCount += 1;
  }

  /** A copy drops set-user-id and similar bits. */
  async #settle(path: string, mode: number): Promise<void> {
    await chmod(path, mode & 0o777);
    if (this.#account !== null) await chown(path, this.#account.uid, this.#account.gid);
  }

  #skip(path: string): void {
    if (this.skipped.length < SKIPPED_TOLD_MAX) this.skipped.push(path);
  }
}

function tooDeep(problem = `it has directories more than ${DEPTH_MAX} deep`): SandlotError {
  return new SandlotError("invalid_path", { path: WORKSPACE_ROOT, problem });
}

function overBudget(path: string): SandlotError {
  return new SandlotError("disk_limit_exceeded", { path: `${WORKSPACE_ROOT}/${path}` });
}
