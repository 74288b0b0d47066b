/**
 * A workspace as directories: created empty, and repaired after damage by a sandbox.
 *
 * Invariants
 * - A workspace belongs to the sandboxes' account, and no other account can traverse its root.
 * - New directories are created out of every sandbox's reach, and have owner and mode before they are moved.
 */

import { chmodSync, chownSync, closeSync, fstatSync, mkdirSync, openSync, renameSync } from "node:fs";
import { chown, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { HOME_DIRECTORY, SandlotError, WORKSPACE_DIRECTORIES } from "@sandlot/contract";
import { errnoOf, statIfThere } from "../../world/disk-trouble.ts";
import { fdPath, OPEN_DIRECTORY } from "../descriptors.ts";
import { ACP_DIRECTORY } from "./layout.ts";

/** The owner of workspaces; `null` when sandboxes run as the fleet's own account. */
export type Account = { readonly uid: number; readonly gid: number } | null;

export function isSame(a: NonNullable<Account>, b: NonNullable<Account>): boolean {
  return a.uid === b.uid && a.gid === b.gid;
}

/**
 * Gives a new file to its account, and checks the account again afterwards: a concurrent walk that gives the workspace
 * to another account (`owners.ts`) has either changed the file, or shows by then. `known` is the file's present owner.
 */
export async function ownBy(file: FileHandle, account: () => Account, known: Account = null): Promise<Account> {
  for (let has = known; ; ) {
    const wanted = account();
    if (wanted === null || (has !== null && isSame(has, wanted))) return wanted;
    // By the descriptor's path: a directory's own descriptor may be `O_PATH`.
    await chown(fdPath(file.fd), wanted.uid, wanted.gid);
    has = wanted;
  }
}

const ROOT_MODE = 0o700;
const DIRECTORY_MODE = 0o755;
/** The home is its owner's alone, as programs that keep keys there require. */
const DIRECTORIES: readonly (readonly [name: string, mode: number])[] = [
  ...[...WORKSPACE_DIRECTORIES, ACP_DIRECTORY].map((name) => [name, DIRECTORY_MODE] as const),
  [HOME_DIRECTORY, ROOT_MODE],
];

/** Creates an empty workspace at a free path. */
export function makeTree(path: string, account: Account): void {
  mkdirSync(path, ROOT_MODE);
  for (const [name, mode] of DIRECTORIES) makeDirectory(join(path, name), mode, account);
  settle(path, ROOT_MODE, account);
}

/**
 * Restores a workspace's required directories and rights, with its root's owner. Anything else under a directory's name
 * is left alone: the sandbox put it there, and it reaches only the sandbox's own files.
 */
export function repairTree(path: string, account: Account): void {
  allowOwner(path);
  const descriptor = openSync(path, OPEN_DIRECTORY);
  try {
    const owner = account === null ? null : fstatSync(descriptor);
    for (const [name, mode] of DIRECTORIES) {
      const directory = fdPath(descriptor, name);
      if (statIfThere(directory) === undefined) makeDirectory(directory, mode, owner);
    }
  } finally {
    closeSync(descriptor);
  }
}

/** Moves a workspace with one rename. */
export function moveTree(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === "EXDEV") {
      const neededBy = `moving ${from} to ${to}, which are on different mounts,`;
      throw new SandlotError("capability_missing", { backend: "disk", capability: "late-binding", neededBy });
    }
    if (errno !== "EACCES") throw error;
    // A sandbox may remove its own rights to the directory. Without them only root can move it.
    allowOwner(from);
    renameSync(from, to);
  }
}

function allowOwner(path: string): void {
  const descriptor = openSync(path, OPEN_DIRECTORY);
  try {
    const mode = fstatSync(descriptor).mode & 0o7777;
    if ((mode & ROOT_MODE) !== ROOT_MODE) chmodSync(fdPath(descriptor), mode | ROOT_MODE);
  } finally {
    closeSync(descriptor);
  }
}

function makeDirectory(path: string, mode: number, account: Account): void {
  try {
    mkdirSync(path, mode);
  } catch (error) {
    if (errnoOf(error) === "EEXIST") return;
    throw error;
  }
  settle(path, mode, account);
}

/** Through a descriptor: a sandbox that reaches the name could replace it. */
function settle(path: string, mode: number, account: Account): void {
  const descriptor = openSync(path, OPEN_DIRECTORY);
  try {
    chmodSync(fdPath(descriptor), mode);
    if (account !== null) chownSync(fdPath(descriptor), account.uid, account.gid);
  } finally {
    closeSync(descriptor);
  }
}
