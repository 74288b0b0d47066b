/**
 * Snapshots of file trees in memory.
 *
 * Invariants
 * - A snapshot shares nothing that a sandbox can change: bytes are copied, unless an earlier snapshot of the same
 *   version of the file has them.
 * - Two snapshots are equal when their hashes are: names, kinds, modes, contents, and the times of files and links.
 * - Caches are left out, and a restore leaves them alone.
 */

import { createHash } from "node:crypto";
import { HOME_DIRECTORY } from "@sandlot/contract";
import { bytesOf, type DirectoryNode, makeDirectory, makeFile, makeSymlink, type TreeNode } from "../files/node.ts";

export type Kept = KeptFile | KeptDirectory | KeptLink;

export interface KeptFile {
  readonly kind: "file";
  readonly bytes: Uint8Array;
  readonly mode: number;
  readonly modifiedAt: number;
  readonly hash: string;
  readonly version: number;
}

export interface KeptDirectory {
  readonly kind: "directory";
  readonly entries: ReadonlyMap<string, Kept>;
  readonly mode: number;
  readonly modifiedAt: number;
  readonly hash: string;
}

export interface KeptLink {
  readonly kind: "symlink";
  readonly target: string;
  readonly mode: number;
  readonly modifiedAt: number;
  readonly hash: string;
}

/** Relative to the workspace. */
const LEFT_OUT: ReadonlySet<string> = new Set([`${HOME_DIRECTORY}/.cache`, `${HOME_DIRECTORY}/.npm/_cacache`]);

/** `earlier` is what the last snapshot has at the same place. */
export function snapshotOf(node: DirectoryNode, earlier?: Kept, path = ""): KeptDirectory {
  const before = earlier?.kind === "directory" ? earlier.entries : undefined;
  const entries = new Map<string, Kept>();
  for (const [name, child] of node.entries) {
    const at = below(path, name);
    if (LEFT_OUT.has(at)) continue;
    const kept = keptOf(child, before?.get(name), at);
    if (kept !== null) entries.set(name, kept);
  }
  return directoryOf(entries, node.mode, node.modifiedAt);
}

function keptOf(node: TreeNode, earlier: Kept | undefined, path: string): Kept | null {
  if (node.kind === "directory") return snapshotOf(node, earlier, path);
  if (node.kind === "symlink") return linkOf(node.target, node.mode, node.modifiedAt);
  if (node.kind === "device") return null;
  const { mode, modifiedAt, version } = node;
  const same = earlier?.kind === "file" && earlier.version === version ? earlier : undefined;
  if (same?.mode === mode) return same;
  return fileOf(same?.bytes ?? bytesOf(node).slice(), mode, modifiedAt, version);
}

export function fileOf(bytes: Uint8Array, mode: number, modifiedAt: number, version = -1): KeptFile {
  return { kind: "file", bytes, mode, modifiedAt, version, hash: hashOf("file", mode, modifiedAt, bytes) };
}

export function linkOf(target: string, mode: number, modifiedAt: number): KeptLink {
  return { kind: "symlink", target, mode, modifiedAt, hash: hashOf("symlink", mode, modifiedAt, target) };
}

export function directoryOf(entries: ReadonlyMap<string, Kept>, mode: number, modifiedAt: number): KeptDirectory {
  const lines = [...entries].map(([name, { hash }]) => JSON.stringify([name, hash])).sort();
  return { kind: "directory", entries, mode, modifiedAt, hash: hashOf("directory", mode, 0, lines.join("\n")) };
}

function hashOf(kind: string, mode: number, modifiedAt: number, content: string | Uint8Array): string {
  return createHash("sha256").update(`${kind}\n${mode}\n${modifiedAt}\n`).update(content).digest("hex");
}

/** Makes the tree what the snapshot has, except for what snapshots leave out. Mount points stay. */
export function applySnapshot(target: KeptDirectory, onto: DirectoryNode, now: number, path = ""): void {
  onto.mode = target.mode;
  for (const [name, node] of onto.entries) {
    const at = below(path, name);
    if (LEFT_OUT.has(at)) continue;
    const isKept = target.entries.has(name) || holdsLeftOut(node, at);
    if (!isKept && !(node.kind === "directory" && node.pinned)) onto.entries.delete(name);
    else if (!target.entries.has(name) && node.kind === "directory") applySnapshot(EMPTY, node, now, at);
  }
  for (const [name, kept] of target.entries) {
    const node = onto.entries.get(name);
    if (kept.kind === "directory") {
      const directory = node?.kind === "directory" ? node : makeDirectory(now);
      onto.entries.set(name, directory);
      applySnapshot(kept, directory, now, below(path, name));
    } else if (node === undefined || keptOf(node, undefined, "")?.hash !== kept.hash)
      onto.entries.set(name, made(kept));
  }
  onto.modifiedAt = target === EMPTY ? now : target.modifiedAt;
}

const EMPTY: KeptDirectory = directoryOf(new Map(), 0o755, 0);

/** A left-out directory must not go with the directory that it is in. */
function holdsLeftOut(node: TreeNode, path: string): boolean {
  if (node.kind !== "directory") return false;
  return [...LEFT_OUT].some((leftOut) => {
    if (!leftOut.startsWith(`${path}/`)) return false;
    const rest = leftOut.slice(path.length + 1).split("/");
    let at: TreeNode | undefined = node;
    for (const name of rest) at = at?.kind === "directory" ? at.entries.get(name) : undefined;
    return at !== undefined;
  });
}

function made(kept: KeptFile | KeptLink): TreeNode {
  const node =
    kept.kind === "file"
      ? makeFile(kept.modifiedAt, kept.bytes.slice(), kept.mode)
      : makeSymlink(kept.modifiedAt, kept.target);
  return node;
}

/** The snapshot with some paths as another one has them. */
export function withPaths(present: KeptDirectory, target: KeptDirectory, paths: readonly string[]): KeptDirectory {
  let result = present;
  for (const path of paths) result = grafted(result, path.split("/"), keptAt(target, path));
  return result;
}

function grafted(into: KeptDirectory, [name = "", ...rest]: readonly string[], node: Kept | undefined): KeptDirectory {
  const entries = new Map(into.entries);
  if (rest.length > 0) {
    const next = entries.get(name);
    const directory = next?.kind === "directory" ? next : EMPTY;
    if (next?.kind !== "directory" && node === undefined) return into;
    entries.set(name, grafted(directory, rest, node));
  } else if (node === undefined) entries.delete(name);
  else entries.set(name, node);
  return directoryOf(entries, into.mode, into.modifiedAt);
}

export function keptAt(root: KeptDirectory, path: string): Kept | undefined {
  let at: Kept | undefined = root;
  for (const name of path.split("/")) at = at?.kind === "directory" ? at.entries.get(name) : undefined;
  return at;
}

/** Every entry, a directory before its content, by name. */
export function* entriesOf(root: KeptDirectory, path = ""): Generator<readonly [string, Kept]> {
  for (const [name, kept] of [...root.entries].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const at = below(path, name);
    yield [at, kept];
    if (kept.kind === "directory") yield* entriesOf(kept, at);
  }
}

export function sizeOfKept(kept: Kept): number {
  return kept.kind === "file" ? kept.bytes.byteLength : 0;
}

function below(path: string, name: string): string {
  return path === "" ? name : `${path}/${name}`;
}
