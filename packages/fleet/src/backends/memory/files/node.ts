/**
 * The nodes of a file tree in memory.
 *
 * Invariants
 * - A node does not know its name or parent: the same workspace node hangs at its home, in a slot, or in a sandbox.
 * - A file's bytes are `data[0, size)`; the rest is spare room, so that appending is cheap.
 * - A `pinned` directory is a mount point (or one of the directories that always exist): it is never removed or
 *   renamed.
 * - The entries of a `sealed` directory change only from outside the sandbox, as those of `/mnt` do.
 */

import { HOME_DIRECTORY, HOME_LINK, SandlotError, TEMPORARY_HOME, WORKSPACE_DIRECTORIES } from "@sandlot/contract";

export interface FileNode {
  readonly kind: "file";
  data: Uint8Array;
  size: number;
  mode: number;
  modifiedAt: number;
  /** Changes with every change of the bytes. */
  version: number;
}

export interface DirectoryNode {
  readonly kind: "directory";
  readonly entries: Map<string, TreeNode>;
  mode: number;
  modifiedAt: number;
  readonly pinned: boolean;
  readonly sealed: boolean;
}

export interface SymlinkNode {
  readonly kind: "symlink";
  readonly target: string;
  readonly mode: number;
  modifiedAt: number;
}

export interface DeviceNode {
  readonly kind: "device";
  readonly device: "null" | "zero";
  readonly mode: number;
  modifiedAt: number;
}

export type TreeNode = FileNode | DirectoryNode | SymlinkNode | DeviceNode;

/** One file never grows beyond this: a runaway `yes > file` must not take the host's memory. */
export const FILE_MAX_BYTES = 256 * 1024 * 1024;

/** One counter for all files, so that a file never has the version of the file that it replaces. */
let versions = 0;

const FILE_MODE = 0o644;
const DIRECTORY_MODE = 0o755;

export function makeFile(now: number, content: Uint8Array = new Uint8Array(0), mode: number = FILE_MODE): FileNode {
  return { kind: "file", data: content, size: content.length, mode, modifiedAt: now, version: ++versions };
}

export function makeDirectory(now: number, options: { pinned?: boolean; sealed?: boolean } = {}): DirectoryNode {
  const { pinned = false, sealed = false } = options;
  return { kind: "directory", entries: new Map(), mode: DIRECTORY_MODE, modifiedAt: now, pinned, sealed };
}

export function makeSymlink(now: number, target: string): SymlinkNode {
  return { kind: "symlink", target, mode: 0o777, modifiedAt: now };
}

/** An empty workspace, for `/mnt/user-data`. */
export function makeWorkspace(now: number): DirectoryNode {
  const workspace = makeDirectory(now, { pinned: true });
  for (const name of WORKSPACE_DIRECTORIES) workspace.entries.set(name, makeDirectory(now, { pinned: true }));
  return withHome(workspace, now);
}

/** Repairs a workspace for its next sandbox: a command may have removed the home. */
export function withHome(workspace: DirectoryNode, now: number): DirectoryNode {
  if (!workspace.entries.has(HOME_DIRECTORY)) workspace.entries.set(HOME_DIRECTORY, makeDirectory(now));
  return workspace;
}

/** The part of the tree that is private to one sandbox, with `mnt` in its place. `home` is the path of the home. */
export function makePrivateRoot(now: number, mnt: DirectoryNode, home: string): DirectoryNode {
  const root = makeDirectory(now, { pinned: true });
  const dev = makeDirectory(now, { pinned: true, sealed: true });
  dev.entries.set("null", { kind: "device", device: "null", mode: 0o666, modifiedAt: now });
  dev.entries.set("zero", { kind: "device", device: "zero", mode: 0o666, modifiedAt: now });
  root.entries.set("dev", dev);
  root.entries.set("mnt", mnt);
  const homes = makeDirectory(now);
  homes.entries.set(nameOf(HOME_LINK), makeSymlink(now, home));
  if (home === TEMPORARY_HOME) homes.entries.set(nameOf(home), makeDirectory(now));
  root.entries.set("home", homes);
  for (const name of ["bin", "etc", "usr", "var"]) root.entries.set(name, makeDirectory(now));
  root.entries.set("tmp", makeDirectory(now, { pinned: true }));
  return root;
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

export function bytesOf(file: FileNode): Uint8Array {
  return file.data.subarray(0, file.size);
}

/** Replaces the content of a file. The array becomes the file's own. */
export function setBytes(file: FileNode, content: Uint8Array, now: number): void {
  file.data = content;
  file.size = content.length;
  file.modifiedAt = now;
  file.version = ++versions;
}

export function appendBytes(file: FileNode, content: Uint8Array, now: number, path: string): void {
  const size = file.size + content.length;
  if (size > FILE_MAX_BYTES)
    throw new SandlotError("file_too_large", { path, sizeBytes: size, maxBytes: FILE_MAX_BYTES });
  if (size > file.data.length) {
    const grown = new Uint8Array(Math.max(size, file.data.length * 2, 64));
    grown.set(bytesOf(file));
    file.data = grown;
  }
  file.data.set(content, file.size);
  file.size = size;
  file.modifiedAt = now;
  file.version = ++versions;
}

export function sizeOf(node: TreeNode): number {
  if (node.kind === "file") return node.size;
  return node.kind === "symlink" ? new TextEncoder().encode(node.target).length : 0;
}
