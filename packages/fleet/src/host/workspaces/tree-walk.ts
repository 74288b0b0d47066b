/** Walks from a workspace's root to a path, one descriptor at a time. */

import type { BigIntStats } from "node:fs";
import { type FileHandle, mkdir, open } from "node:fs/promises";
import { type FileStat, SandlotError } from "@sandlot/contract";
import { errnoOf, inOurWords } from "../../world/disk-trouble.ts";
import { fdPath, OPEN_ANY, OPEN_DIRECTORY } from "../descriptors.ts";
import { type Account, ownBy } from "./tree.ts";

const NAME_MAX_BYTES = 255;

/** The names of a path below the workspace's root; none for the root itself. */
export function namesOf(path: string): readonly string[] {
  const refuse = (problem: string) => new SandlotError("invalid_path", { path, problem });
  if (path.startsWith("/")) throw refuse("it must be relative to the workspace");
  if (path.includes("\0")) throw refuse("it contains a NUL byte");
  const names = path.split("/").filter((name) => name !== "" && name !== ".");
  if (names.includes("..")) throw refuse("it must not contain ..");
  if (names.some((name) => Buffer.byteLength(name) > NAME_MAX_BYTES)) throw refuse("a name in it is too long");
  return names;
}

/** Calls `use` with the descriptor of a directory. The root's own is not opened again. */
export async function inDirectory<T>(
  root: number,
  names: readonly string[],
  use: (descriptor: number) => Promise<T>,
  make?: { readonly account: () => Account },
): Promise<T> {
  let at: FileHandle | undefined;
  try {
    for (const name of names) {
      const path = fdPath(at?.fd ?? root, name);
      const next = await openDirectory(path, make);
      await at?.close();
      at = next;
    }
    return await use(at?.fd ?? root);
  } catch (error) {
    throw inOurWords(error, names.join("/"));
  } finally {
    await at?.close();
  }
}

async function openDirectory(path: string, make: { readonly account: () => Account } | undefined): Promise<FileHandle> {
  try {
    return await open(path, OPEN_DIRECTORY);
  } catch (error) {
    if (make === undefined || errnoOf(error) !== "ENOENT") throw error;
  }
  return makeDirectory(path, make.account);
}

/** Creates a directory that belongs to the sandbox, or opens one that was created just now. */
async function makeDirectory(path: string, account: () => Account): Promise<FileHandle> {
  const isNew = await mkdir(path, 0o755).then(
    () => true,
    (error: unknown) => {
      if (errnoOf(error) === "EEXIST") return false;
      throw error;
    },
  );
  const directory = await open(path, OPEN_DIRECTORY);
  if (!isNew) return directory;
  try {
    await ownBy(directory, account);
    return directory;
  } catch (error) {
    await directory.close();
    throw error;
  }
}

/** Calls `use` with an `O_PATH` descriptor of the path: for stat, not for reading. */
export async function atPath<T>(root: number, path: string, use: (node: FileHandle) => Promise<T>): Promise<T> {
  const names = namesOf(path);
  return inDirectory(root, names.slice(0, -1), async (parent) => {
    try {
      const node = await open(fdPath(parent, names.at(-1) ?? "."), OPEN_ANY);
      try {
        return await use(node);
      } finally {
        await node.close();
      }
    } catch (error) {
      throw inOurWords(error, path);
    }
  });
}

/** The facts from a stat of a file. */
export function describe(path: string, stats: BigIntStats): FileStat {
  return {
    path,
    kind: kindOf(stats),
    sizeBytes: Number(stats.size),
    mode: Number(stats.mode & 0o7777n),
    modifiedAt: Number(stats.mtimeMs),
    // The daemon computes the same version, so a version from one is valid at the other.
    version: [stats.ino, stats.mtimeNs, stats.size].map((part) => part.toString(36)).join("."),
  };
}

/** Refuses everything but a regular file. */
export function checkPlain(path: string, stats: BigIntStats): void {
  const kind = kindOf(stats);
  if (kind === "directory") throw new SandlotError("is_a_directory", { path });
  if (kind === "symlink") throw new SandlotError("invalid_path", { path, problem: "it is a symbolic link" });
  if (kind === "other") throw new SandlotError("invalid_path", { path, problem: "it is not a plain file" });
}

function kindOf(stats: BigIntStats): FileStat["kind"] {
  if (stats.isFile()) return "file";
  if (stats.isDirectory()) return "directory";
  return stats.isSymbolicLink() ? "symlink" : "other";
}
