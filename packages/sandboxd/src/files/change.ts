/** Renames, removes and describes files. */

import { type BigIntStats, lstatSync, statSync } from "node:fs";
import { cp, lstat, rename, rm, rmdir, unlink } from "node:fs/promises";
import { dirname } from "node:path/posix";
import { type FileStat, SandlotError } from "@sandlot/contract";
import { aboutPath, fileError } from "./file-error.ts";
import { withTemporary } from "./temporary.ts";

export async function renamePath(from: string, to: string): Promise<void> {
  await aboutPath(from, () => lstat(from));
  try {
    await rename(from, to);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "EXDEV") return aboutPath(to, () => moveAcross(from, to));
    if (code === "EINVAL")
      throw new SandlotError("invalid_path", { path: to, problem: "a directory cannot be moved into itself" });
    // The kernel reports a directory in the way of a file by either name.
    if (code === "EEXIST") throw new SandlotError("directory_not_empty", { path: to }, { cause: error });
    throw fileError(error, to);
  }
}

export function removePath(path: string, recursive: boolean): Promise<void> {
  return aboutPath(path, async () => {
    const found = await lstat(path);
    if (!found.isDirectory()) return unlink(path);
    if (recursive) return rm(path, { recursive: true });
    await rmdir(path);
  });
}

export function statPath(path: string): FileStat {
  try {
    return statOf(path, lstatSync(path, { bigint: true }));
  } catch (error) {
    throw fileError(error, path);
  }
}

/** A new file in its place, a write, or another length: each makes another version. */
export function versionOf({ ino, mtimeNs, size }: BigIntStats): string {
  return `${ino.toString(36)}.${mtimeNs.toString(36)}.${size.toString(36)}`;
}

export function statOf(path: string, stats: BigIntStats): FileStat {
  const kind = kindOf(stats);
  return {
    path,
    kind,
    // The size of a directory's own names has no meaning for callers.
    sizeBytes: kind === "file" || kind === "symlink" ? Number(stats.size) : 0,
    mode: Number(stats.mode) & 0o7777,
    modifiedAt: Number(stats.mtimeMs),
    version: versionOf(kind === "symlink" ? (contentOf(path) ?? stats) : stats),
  };
}

/** Reads and writes through a link concern its target. */
function contentOf(path: string): BigIntStats | undefined {
  try {
    return statSync(path, { bigint: true, throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

function kindOf(stats: BigIntStats): FileStat["kind"] {
  if (stats.isFile()) return "file";
  if (stats.isDirectory()) return "directory";
  return stats.isSymbolicLink() ? "symlink" : "other";
}

/** A rename between two mounts is impossible: copied beside the target, renamed there, then removed here. */
async function moveAcross(from: string, to: string): Promise<void> {
  await withTemporary(dirname(to), async (temporary) => {
    try {
      await cp(from, temporary, { recursive: true, preserveTimestamps: true, verbatimSymlinks: true });
      await rename(temporary, to);
    } catch (error) {
      await rm(temporary, { recursive: true, force: true });
      throw copyProblem(error, to);
    }
  });
  await rm(from, { recursive: true });
}

/** What Node refuses to copy: a directory into itself, a FIFO, a socket. */
function copyProblem(error: unknown, path: string): unknown {
  const code = (error as NodeJS.ErrnoException).code ?? "";
  if (!code.startsWith("ERR_FS_CP_")) return error;
  const isInside = code === "ERR_FS_CP_EINVAL";
  const problem = isInside ? "a directory cannot be moved into itself" : "it cannot be moved between two mounts";
  return new SandlotError("invalid_path", { path, problem }, { cause: error });
}
