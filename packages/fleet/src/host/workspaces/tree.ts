/**
 * A workspace as directories: made empty, and made whole again when a sandbox has damaged it.
 *
 * Invariants
 * - A workspace belongs to the account that sandboxes run as, and nobody else passes its root.
 * - What is made is made out of every sandbox's reach, and has its owner and mode before it is moved anywhere.
 */

import { chmodSync, chownSync, closeSync, fstatSync, mkdirSync, openSync, renameSync } from "node:fs";
import { chown, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { SandlotError, WORKSPACE_DIRECTORIES } from "@sandlot/contract";
import { errnoOf, statIfThere } from "../../world/disk-trouble.ts";
import { fdPath, OPEN_DIRECTORY } from "../descriptors.ts";
import { ACP_DIRECTORY } from "./layout.ts";

/** Whom workspaces belong to; `null` when sandboxes run as the fleet's own account. */
export type Account = { readonly uid: number; readonly gid: number } | null;

export function isSame(a: NonNullable<Account>, b: NonNullable<Account>): boolean {
  return a.uid === b.uid && a.gid === b.gid;
}

/**
 * Gives a new file to its account, and asks again afterwards: a walk that gives the workspace to another account meanwhile
 * (`owners.ts`) has either met the file, or is known by then. `known` is an owner that it has already.
 */
export async function ownBy(file: FileHandle, account: () => Account, known: Account = null): Promise<Account> {
  for (let has = known; ; ) {
    const wanted = account();
    if (wanted === null || (has !== null && isSame(has, wanted))) return wanted;
    // By the descriptor's name: a directory's own descriptor may only be good for looking.
    await chown(fdPath(file.fd), wanted.uid, wanted.gid);
    has = wanted;
  }
}

const ROOT_MODE = 0o700;
const DIRECTORY_MODE = 0o755;
const DIRECTORIES = [...WORKSPACE_DIRECTORIES, ACP_DIRECTORY] as const;

/** Makes an empty workspace at a path where nothing is. */
export function makeTree(path: string, account: Account): void {
  mkdirSync(path, ROOT_MODE);
  for (const name of DIRECTORIES) makeDirectory(join(path, name), DIRECTORY_MODE, account);
  settle(path, ROOT_MODE, account);
}

/**
 * Gives a workspace back the directories and the rights that it must have; they belong to whom its root belongs. What stands under a directory's name is
 * left alone, whatever it is: it is the sandbox's own doing, and it can reach nothing but what is its own.
 */
export function repairTree(path: string, account: Account): void {
  allowOwner(path);
  const descriptor = openSync(path, OPEN_DIRECTORY);
  try {
    const owner = account === null ? null : fstatSync(descriptor);
    for (const name of DIRECTORIES) {
      const directory = fdPath(descriptor, name);
      if (statIfThere(directory) === undefined) makeDirectory(directory, DIRECTORY_MODE, owner);
    }
  } finally {
    closeSync(descriptor);
  }
}

/** Moves a workspace. One rename, whatever is in it. */
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
    // A sandbox may take its own rights to the directory away. Without them only root can give it another parent.
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

/** Through a descriptor: where a sandbox could reach the name, it might have become something else. */
function settle(path: string, mode: number, account: Account): void {
  const descriptor = openSync(path, OPEN_DIRECTORY);
  try {
    chmodSync(fdPath(descriptor), mode);
    if (account !== null) chownSync(fdPath(descriptor), account.uid, account.gid);
  } finally {
    closeSync(descriptor);
  }
}
