/**
 * Slots: what blanks mount at `/mnt`, and which thread's workspace is in which.
 *
 * Invariants
 * - A slot belongs to the fleet, and a sandbox cannot write in it. Its name has sandbox id and generation and is never
 *   reused.
 * - A workspace is identified by its inode, never by its name: a directory that a sandbox plants in its slot is not
 *   mistaken for it, and a workspace renamed inside its slot is found.
 * - Until a slot is released its sandbox may still run, and nothing is taken out of it.
 */

import {
  chmodSync,
  closeSync,
  constants,
  type Dir,
  lstatSync,
  mkdirSync,
  opendirSync,
  openSync,
  readdirSync,
  readlinkSync,
  symlinkSync,
} from "node:fs";
import { join } from "node:path";
import { SandlotError } from "@sandlot/contract";
import { errnoOf, statIfThere, unlessMissing } from "../../world/disk-trouble.ts";
import { fdPath, OPEN_DIRECTORY } from "../descriptors.ts";
import { TENANT, type Tenant } from "./fence.ts";
import { ACP_LINK, ACP_TARGET, type Layout, parseSlotName, USER_DATA } from "./layout.ts";

/** A mount of a sandbox below `/mnt`: an engine needs an existing mount point there. */
export interface MountPoint {
  /** Relative to `/mnt`. */
  readonly path: string;
  readonly kind: "directory" | "file";
}

/** The limit of the search for a renamed workspace. Everything beyond goes to quarantine. */
const SEARCH_MAX_ENTRIES = 10_000;
const SEARCH_MAX_DEPTH = 16;
const RELEASED = "released";

export class Slots {
  readonly #layout: Layout;
  readonly #passable: number;

  /** `passable` is the mode of directories that a sandbox's account may traverse, but not read. */
  constructor(layout: Layout, passable: number) {
    this.#layout = layout;
    this.#passable = passable;
  }

  make(name: string, mountPoints: readonly MountPoint[]): void {
    const mnt = this.#layout.mnt(name);
    try {
      mkdirSync(this.#layout.slot(name), 0o700);
    } catch (error) {
      if (errnoOf(error) === "EEXIST") throw new SandlotError("file_exists", { path: `slot:${name}` });
      throw error;
    }
    mkdirSync(mnt, 0o755);
    symlinkSync(ACP_TARGET, join(mnt, ACP_LINK));
    for (const point of mountPoints) makeMountPoint(mnt, point);
    chmodSync(mnt, 0o755);
    chmodSync(this.#layout.slot(name), this.#passable);
  }

  names(): readonly string[] {
    return readdirSync(this.#layout.slots).filter((name) => parseSlotName(name) !== null);
  }

  /** Whether a workspace can be put into it: it exists, and its sandbox is not confirmed gone. */
  isOpen(name: string): boolean {
    return isDirectory(this.#layout.mnt(name)) && !this.isReleased(name);
  }

  isThere(name: string): boolean {
    return isDirectory(this.#layout.slot(name));
  }

  isReleased(name: string): boolean {
    return exists(join(this.#layout.slot(name), RELEASED));
  }

  release(name: string): void {
    const flags = constants.O_CREAT | constants.O_WRONLY;
    closeSync(openSync(join(this.#layout.slot(name), RELEASED), flags, 0o600));
  }

  /** The thread whose workspace really is in the slot. */
  tenant(name: string): Tenant | null {
    const tenant = TENANT.read(this.#layout.slot(name));
    return tenant !== null && this.reach(name, tenant, () => true) === true ? tenant : null;
  }

  /** Whether the workspace's place is empty, and no workspace is anywhere else in the slot. */
  isFree(name: string): boolean {
    return !exists(join(this.#layout.mnt(name), USER_DATA)) && this.tenant(name) === null;
  }

  /** Calls `use` with a path to the tenant's workspace, anywhere in the slot; `undefined` when it is not there. */
  reach<T>(name: string, { inode }: Tenant, use: (path: string) => T): T | undefined {
    const mnt = this.#layout.mnt(name);
    const usual = join(mnt, USER_DATA);
    const device = unlessMissing(() => lstatSync(mnt, { bigint: true }).dev);
    if (device === undefined) return undefined;
    const isIt = (path: string) => {
      const stats = unlessMissing(() => lstatSync(path, { bigint: true }));
      return stats?.isDirectory() === true && stats.ino === inode && stats.dev === device;
    };
    return isIt(usual) ? use(usual) : search(mnt, isIt, use, { entries: SEARCH_MAX_ENTRIES, depth: SEARCH_MAX_DEPTH });
  }

  /** Whether the slot has content that a user might miss. Scaffolding and empty directories do not count. */
  hasContent(name: string): boolean {
    const mnt = this.#layout.mnt(name);
    if (!isDirectory(mnt)) return false;
    return readdirSync(mnt).some((entry) => {
      const path = join(mnt, entry);
      const isOurLink = entry === ACP_LINK && lstatSync(path).isSymbolicLink() && readlinkSync(path) === ACP_TARGET;
      return !isOurLink && !isBare(path, SEARCH_MAX_DEPTH);
    });
  }
}

/** Depth first, by descriptors, without following links. */
function search<T>(
  directory: string,
  isIt: (path: string) => boolean,
  use: (path: string) => T,
  budget: { entries: number; depth: number },
): T | undefined {
  const below: string[] = [];
  for (const { name } of entriesOf(directory) ?? []) {
    if (budget.entries-- <= 0) return undefined;
    const path = join(directory, name);
    if (isIt(path)) return use(path);
    below.push(path);
  }
  if (budget.depth <= 0) return undefined;
  for (const path of below) {
    const descriptor = openDirectory(path);
    if (descriptor === undefined) continue;
    try {
      budget.depth--;
      const found = search(fdPath(descriptor), isIt, use, budget);
      if (found !== undefined) return found;
    } finally {
      budget.depth++;
      closeSync(descriptor);
    }
  }
  return undefined;
}

/** A tree of only empty directories and empty files, as mount points are. */
function isBare(path: string, depth: number): boolean {
  const stats = statIfThere(path);
  if (stats === undefined) return true;
  if (stats.isFile()) return stats.size === 0;
  const descriptor = depth > 0 ? openDirectory(path) : undefined;
  if (descriptor === undefined) return false;
  try {
    const entries = entriesOf(fdPath(descriptor));
    for (const { name } of entries ?? []) if (!isBare(fdPath(descriptor, name), depth - 1)) return false;
    return entries !== null;
  } finally {
    closeSync(descriptor);
  }
}

/** Lazily: a planted directory may be huge. `null` for an unreadable one. */
function entriesOf(directory: string): Iterable<{ readonly name: string }> | null {
  try {
    return entriesOfOpened(opendirSync(directory));
  } catch (error) {
    if (errnoOf(error) === "EACCES") return null;
    throw error;
  }
}

function* entriesOfOpened(opened: Dir): Generator<{ readonly name: string }> {
  try {
    for (let entry = opened.readSync(); entry !== null; entry = opened.readSync()) yield entry;
  } finally {
    opened.closeSync();
  }
}

function openDirectory(path: string): number | undefined {
  return unlessMissing(() => openSync(path, OPEN_DIRECTORY));
}

function makeMountPoint(mnt: string, { path, kind }: MountPoint): void {
  const names = path.split("/");
  const isReserved = names[0] === USER_DATA || names[0] === ACP_LINK;
  if (isReserved || names.some((name) => name === "" || name === "." || name === "..")) {
    throw new SandlotError("invalid_path", { path, problem: "it cannot be a mount point below /mnt" });
  }
  let at = mnt;
  for (const [index, name] of names.entries()) {
    at = join(at, name);
    if (exists(at)) continue;
    if (kind === "file" && index === names.length - 1) closeSync(openSync(at, constants.O_CREAT, 0o644));
    else mkdirSync(at);
    // Regardless of the umask: a sandbox's account must traverse it.
    chmodSync(at, 0o755);
  }
}

function isDirectory(path: string): boolean {
  return statIfThere(path)?.isDirectory() === true;
}

function exists(path: string): boolean {
  return statIfThere(path) !== undefined;
}
