/**
 * A file tree in memory, with the steps that the shell's commands and the `files` calls of a sandbox use.
 *
 * Every method is synchronous, so each is atomic for all readers of the tree. Errors are `SandlotError`s; the shell
 * turns their codes into the sentences people know (`No such file or directory`).
 */

import { FILE_MODE_BITS, SandlotError } from "@sandlot/contract";
import {
  appendBytes,
  bytesOf,
  type DirectoryNode,
  FILE_MAX_BYTES,
  type FileNode,
  makeDirectory,
  makeFile,
  makeSymlink,
  setBytes,
  type TreeNode,
} from "./node.ts";

/** A name in a directory, whether or not it exists. `parent` is `null` for the root only. */
interface Spot {
  readonly parent: DirectoryNode | null;
  readonly name: string;
  readonly node: TreeNode | undefined;
  /** The path with every symbolic link on the way resolved. */
  readonly realPath: string;
}

const PATH_MAX_CHARS = 4_096;
const NAME_MAX_CHARS = 255;
/** The same as Linux's limit. */
const SYMLINK_HOPS_MAX = 40;

export class FileTree {
  readonly #root: DirectoryNode;
  readonly #now: () => number;

  constructor(root: DirectoryNode, now: () => number) {
    this.#root = root;
    this.#now = now;
  }

  find(path: string, options: { follow?: boolean } = {}): TreeNode | undefined {
    try {
      return this.#walk(path, options.follow ?? true).node;
    } catch (error) {
      if (error instanceof SandlotError && (error.code === "file_not_found" || error.code === "not_a_directory"))
        return undefined;
      throw error;
    }
  }

  get(path: string, options: { follow?: boolean } = {}): TreeNode {
    const { node } = this.#walk(path, options.follow ?? true);
    if (node === undefined) throw new SandlotError("file_not_found", { path });
    return node;
  }

  directory(path: string): DirectoryNode {
    const node = this.get(path);
    if (node.kind !== "directory") throw new SandlotError("not_a_directory", { path });
    return node;
  }

  file(path: string): FileNode {
    const node = this.get(path);
    if (node.kind === "directory") throw new SandlotError("is_a_directory", { path });
    // A device has no content of its own; reading one through `files` finds it empty.
    return node.kind === "file" ? node : makeFile(node.modifiedAt);
  }

  realPath(path: string): string {
    const spot = this.#walk(path, true);
    if (spot.node === undefined) throw new SandlotError("file_not_found", { path });
    return spot.realPath;
  }

  read(path: string): Uint8Array {
    return bytesOf(this.file(path)).slice();
  }

  /** Replaces a file in one step. An existing file keeps its mode unless `mode` is given. */
  write(path: string, content: Uint8Array, mode?: number): void {
    if (content.length > FILE_MAX_BYTES) {
      throw new SandlotError("file_too_large", { path, sizeBytes: content.length, maxBytes: FILE_MAX_BYTES });
    }
    const file = this.open(path);
    if (file === null) return;
    setBytes(file, content.slice(), this.#now());
    file.mode = (mode ?? file.mode) & FILE_MODE_BITS;
  }

  append(path: string, content: Uint8Array): void {
    const file = this.open(path);
    if (file !== null) appendBytes(file, content, this.#now(), path);
  }

  /** The file at `path`, made when it is missing. `null`: a device, which discards all writes. */
  open(path: string): FileNode | null {
    const { parent, name, node } = this.#walk(path, true);
    if (node?.kind === "directory") throw new SandlotError("is_a_directory", { path });
    if (node?.kind === "device") return null;
    if (node?.kind === "file") return node;
    const file = makeFile(this.#now());
    this.#enter(parent, name, file, path);
    return file;
  }

  mkdir(path: string): void {
    const { parent, name, node } = this.#walk(path, true);
    if (node !== undefined) throw new SandlotError("file_exists", { path });
    this.#enter(parent, name, makeDirectory(this.#now()), path);
  }

  /** Makes a directory and its missing parents. */
  mkdirs(path: string): void {
    const { node } = this.#tryWalk(path);
    if (node?.kind === "directory") return;
    if (node !== undefined) throw new SandlotError("not_a_directory", { path });
    const parent = parentOf(path);
    if (parent !== path) this.mkdirs(parent);
    this.mkdir(path);
  }

  symlink(target: string, path: string): void {
    const { parent, name, node } = this.#walk(path, false);
    if (node !== undefined) throw new SandlotError("file_exists", { path });
    this.#enter(parent, name, makeSymlink(this.#now(), target), path);
  }

  /** POSIX rename: over a file or an empty directory, never over anything else. */
  rename(from: string, to: string): void {
    const source = this.#walk(from, false);
    if (source.node === undefined) throw new SandlotError("file_not_found", { path: from });
    const target = this.#walk(to, false);
    if (target.node === source.node) return;
    checkReplace(source.node, target.node, to);
    if (target.realPath.startsWith(`${source.realPath}/`)) {
      throw new SandlotError("invalid_path", { path: to, problem: "a directory cannot be moved into itself" });
    }
    this.#leave(source, from);
    try {
      if (target.node !== undefined) this.#leave(target, to);
      this.#enter(target.parent, target.name, source.node, to);
    } catch (error) {
      source.parent?.entries.set(source.name, source.node);
      throw error;
    }
  }

  remove(path: string, options: { recursive?: boolean } = {}): void {
    const spot = this.#walk(path, false);
    if (spot.node === undefined) throw new SandlotError("file_not_found", { path });
    if (spot.node.kind === "directory") {
      if (spot.node.entries.size > 0 && options.recursive !== true)
        throw new SandlotError("directory_not_empty", { path });
      // Content first, as `rm -r` does: a pinned directory stays, empty, and the error names it.
      for (const name of [...spot.node.entries.keys()]) this.remove(join(path, name), options);
    }
    this.#leave(spot, path);
  }

  chmod(path: string, mode: number): void {
    const node = this.get(path);
    if (node.kind === "file" || node.kind === "directory") node.mode = mode & 0o7777;
  }

  touch(path: string, at: number): void {
    const node = this.find(path) ?? this.open(path);
    if (node !== null) node.modifiedAt = at;
  }

  /** Like `#walk`, but a missing directory on the way counts as a missing path. */
  #tryWalk(path: string): { node: TreeNode | undefined } {
    try {
      return this.#walk(path, true);
    } catch (error) {
      if (error instanceof SandlotError && error.code === "file_not_found") return { node: undefined };
      throw error;
    }
  }

  #walk(path: string, followLast: boolean): Spot {
    checkPath(path);
    const trail: { name: string; node: DirectoryNode }[] = [{ name: "", node: this.#root }];
    let names = segments(path);
    for (let hops = 0; ; ) {
      const name = names.shift();
      const here = trail[trail.length - 1] as { name: string; node: DirectoryNode };
      if (name === undefined) return this.#end(trail);
      if (name === "..") {
        if (trail.length > 1) trail.pop();
        continue;
      }
      const child = here.node.entries.get(name);
      const last = names.length === 0;
      if (child?.kind === "symlink" && (followLast || !last)) {
        if (++hops > SYMLINK_HOPS_MAX)
          throw new SandlotError("invalid_path", { path, problem: "too many symbolic links" });
        if (child.target.startsWith("/")) trail.length = 1;
        names = [...segments(child.target), ...names];
        continue;
      }
      if (last) return { parent: here.node, name, node: child, realPath: `${pathOf(trail)}/${name}` };
      if (child === undefined) throw new SandlotError("file_not_found", { path });
      if (child.kind !== "directory") throw new SandlotError("not_a_directory", { path });
      trail.push({ name, node: child });
    }
  }

  /** A walk that ended on a directory by `.`, `..` or `/`. */
  #end(trail: readonly { name: string; node: DirectoryNode }[]): Spot {
    const here = trail[trail.length - 1];
    const parent = trail[trail.length - 2]?.node ?? null;
    return { parent, name: here?.name ?? "", node: here?.node, realPath: pathOf(trail) || "/" };
  }

  #enter(parent: DirectoryNode | null, name: string, node: TreeNode, path: string): void {
    if (parent === null || parent.sealed) throw new SandlotError("read_only_path", { path });
    parent.entries.set(name, node);
    parent.modifiedAt = this.#now();
  }

  #leave({ parent, name, node }: Spot, path: string): void {
    const pinned = node?.kind === "directory" && node.pinned;
    if (parent === null || parent.sealed || pinned) throw new SandlotError("read_only_path", { path });
    parent.entries.delete(name);
    parent.modifiedAt = this.#now();
  }
}

/** Joins and normalises without looking at the tree; `path` may be absolute. */
export function resolvePath(base: string, path: string): string {
  const names: string[] = [];
  for (const name of segments(path.startsWith("/") ? path : `${base}/${path}`)) {
    if (name === "..") names.pop();
    else names.push(name);
  }
  return `/${names.join("/")}`;
}

export function join(directory: string, name: string): string {
  return directory.endsWith("/") ? `${directory}${name}` : `${directory}/${name}`;
}

export function parentOf(path: string): string {
  return resolvePath(path, "..");
}

export function baseName(path: string): string {
  return segments(path).at(-1) ?? "/";
}

/** Checks a path that came from outside. */
export function checkPath(path: string): void {
  const problem = problemOf(path);
  if (problem !== undefined) {
    throw new SandlotError("invalid_path", { path: path.length > 200 ? `${path.slice(0, 197)}...` : path, problem });
  }
}

function problemOf(path: string): string | undefined {
  if (!path.startsWith("/")) return "it is not absolute";
  if (path.includes("\0")) return "it contains a NUL byte";
  if (path.length > PATH_MAX_CHARS) return `it has more than ${PATH_MAX_CHARS} characters`;
  if (segments(path).some((name) => name.length > NAME_MAX_CHARS))
    return `a name in it has more than ${NAME_MAX_CHARS} characters`;
  return undefined;
}

function segments(path: string): string[] {
  return path.split("/").filter((name) => name !== "" && name !== ".");
}

function pathOf(trail: readonly { name: string }[]): string {
  return trail.map(({ name }) => name).join("/");
}

function checkReplace(source: TreeNode, target: TreeNode | undefined, path: string): void {
  if (target === undefined) return;
  if (target.kind === "directory") {
    if (source.kind !== "directory") throw new SandlotError("is_a_directory", { path });
    if (target.entries.size > 0) throw new SandlotError("directory_not_empty", { path });
  } else if (source.kind === "directory") throw new SandlotError("not_a_directory", { path });
}
