/**
 * Writes a file in one step, and appends to one.
 *
 * Invariants
 * - A write goes to a temporary file beside its target and is then renamed: a reader sees the old content or the new,
 *   never half of it, and a failed write leaves no trace. An existing file keeps its mode (not setuid and setgid), and
 *   its owner where the daemon may set it. A symbolic link stays, and its target is replaced. A file in an unwritable
 *   directory cannot be replaced: it is written in place, where a reader may see a part.
 * - A write that expects a version checks before it begins and again in the same turn as it renames, so of two such
 *   writes only one succeeds. For a write that expects no file, the kernel decides.
 * - An append is the kernel's own: two at once do not overwrite each other. One of up to `APPEND_WHOLE_MAX_BYTES` is
 *   appended whole or not at all.
 */

import { constants, linkSync, renameSync, type Stats, statSync, unlinkSync } from "node:fs";
import { chown, type FileHandle, lstat, open, readlink, stat, unlink } from "node:fs/promises";
import { dirname, resolve } from "node:path/posix";
import { FILE_MODE_BITS, SandlotError } from "@sandlot/contract";
import { versionOf } from "./change.ts";
import { aboutPath, NOT_A_FILE } from "./file-error.ts";
import { makeDirectories } from "./make-directories.ts";
import { withTemporary } from "./temporary.ts";

const FILE_MODE = 0o666;
/** Linux's own limit. */
const SYMLINK_HOPS_MAX = 40;
const BATCH_BYTES = 512 * 1024;
const APPEND_WHOLE_MAX_BYTES = 8 * 1024 * 1024;

const NO_LINKS: ReadonlySet<string> = new Set(["EPERM", "ENOTSUP", "EOPNOTSUPP", "EMLINK"]);

/** Errors of a directory that takes no new file. */
const NOT_WRITABLE: ReadonlySet<string> = new Set(["EACCES", "EPERM", "EROFS"]);

/** No file can be created beside the target. The content is still unread. */
class NoRoomBeside extends Error {
  constructor(cause: unknown) {
    super("nothing can be made beside the file", { cause });
  }
}

export type Chunks = AsyncIterable<Uint8Array>;
/** Content as a producer of pieces. After `put` resolves, a piece is written and its memory may be reused. */
export type Content = (put: (pieces: readonly Uint8Array[]) => Promise<void>) => Promise<void>;

export interface WriteParams {
  readonly mode?: number;
  /** The required state: this version, with `null` no file, absent: any. */
  readonly ifVersion?: string | null;
}

export function writeFile(path: string, content: Chunks | Content, params: WriteParams): Promise<void> {
  return aboutPath(path, async () => {
    const target = await finalTarget(path);
    checkVersion(path, target, params);
    await makeDirectories(dirname(target));
    const existing = await statOrNull(target);
    if (existing?.isDirectory() === true) throw new SandlotError("is_a_directory", { path });
    if (existing !== null && !existing.isFile()) return writeThrough(path, target, existing, content);
    const replacing = withTemporary(dirname(target), (temporary) =>
      replace(path, temporary, target, existing, content, params),
    );
    await replacing.catch((error: unknown) => {
      if (!(error instanceof NoRoomBeside) || existing === null)
        throw error instanceof NoRoomBeside ? error.cause : error;
      return writeInPlace(path, target, content, params);
    });
  });
}

export function appendFile(path: string, content: Chunks): Promise<void> {
  return aboutPath(path, async () => {
    await makeDirectories(dirname(path));
    const flags = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK;
    const file = await open(path, flags, FILE_MODE);
    try {
      const opened = await file.stat();
      if (!opened.isFile() && !opened.isCharacterDevice())
        throw new SandlotError("invalid_path", { path, problem: NOT_A_FILE });
      await writeChunks(file, content, APPEND_WHOLE_MAX_BYTES);
    } finally {
      await file.close();
    }
  });
}

async function replace(
  path: string,
  temporary: string,
  target: string,
  existing: Stats | null,
  content: Chunks | Content,
  params: WriteParams,
): Promise<void> {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  const file = await open(temporary, flags, existing === null ? FILE_MODE : 0o600).catch((error: unknown) => {
    throw NOT_WRITABLE.has((error as NodeJS.ErrnoException).code ?? "") ? new NoRoomBeside(error) : error;
  });
  try {
    try {
      await writeContent(file, content);
      const wanted = params.mode ?? (existing === null ? undefined : existing.mode & FILE_MODE_BITS);
      if (existing !== null && (existing.uid !== process.getuid?.() || existing.gid !== process.getgid?.()))
        await chown(temporary, existing.uid, existing.gid).catch(() => {});
      if (wanted !== undefined) await file.chmod(wanted);
    } finally {
      await file.close();
    }
    putInPlace(path, temporary, target, params);
  } catch (error) {
    await unlink(temporary).catch(() => {});
    throw error;
  }
}

/** Synchronous: no other request of this daemon can change the file after the check. */
function putInPlace(path: string, temporary: string, target: string, params: WriteParams): void {
  checkVersion(path, target, params);
  if (params.ifVersion === null && linkInPlace(path, temporary, target, params)) unlinkSync(temporary);
  else renameSync(temporary, target);
}

/** Unlike a rename, a link never replaces. `false`: the file system has no links, so only the check before protects. */
function linkInPlace(path: string, temporary: string, target: string, params: WriteParams): boolean {
  try {
    linkSync(temporary, target);
    return true;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "";
    if (code === "EEXIST") checkVersion(path, target, params);
    if (NO_LINKS.has(code)) return false;
    throw error;
  }
}

function checkVersion(path: string, target: string, { ifVersion }: WriteParams): void {
  if (ifVersion === undefined) return;
  const found = statSync(target, { bigint: true, throwIfNoEntry: false });
  const actual = found === undefined ? null : versionOf(found);
  if (actual !== ifVersion) throw new SandlotError("file_changed", { path, expected: ifVersion, actual });
}

async function writeInPlace(
  path: string,
  target: string,
  content: Chunks | Content,
  params: WriteParams,
): Promise<void> {
  const file = await open(target, constants.O_WRONLY | constants.O_NOFOLLOW);
  try {
    checkVersion(path, target, params);
    await file.truncate(0);
    await writeContent(file, content);
    if (params.mode !== undefined) await file.chmod(params.mode);
  } finally {
    await file.close();
  }
}

/** A device is written to, not replaced by a file. */
async function writeThrough(path: string, target: string, existing: Stats, content: Chunks | Content): Promise<void> {
  if (!existing.isCharacterDevice()) throw new SandlotError("invalid_path", { path, problem: NOT_A_FILE });
  const file = await open(target, constants.O_WRONLY | constants.O_NONBLOCK);
  try {
    await writeContent(file, content);
  } finally {
    await file.close();
  }
}

function writeContent(file: FileHandle, content: Chunks | Content): Promise<void> {
  if (typeof content !== "function") return writeChunks(file, content, BATCH_BYTES);
  return content((pieces) => writeBatch(file, pieces));
}

/** Gathers chunks into batches: one system call for many. The next batch is gathered while one is written. */
async function writeChunks(file: FileHandle, content: Chunks, batchBytes: number): Promise<void> {
  let batch: Uint8Array[] = [];
  let size = 0;
  let writing: Promise<void> = Promise.resolve();
  for await (const chunk of content) {
    batch.push(chunk);
    size += chunk.length;
    if (size < batchBytes) continue;
    await writing;
    writing = writeBatch(file, batch);
    writing.catch(() => {});
    batch = [];
    size = 0;
  }
  await writing;
  if (size > 0) await writeBatch(file, batch);
}

async function writeBatch(file: FileHandle, batch: readonly Uint8Array[]): Promise<void> {
  if (batch.length === 0) return;
  const total = batch.reduce((sum, { length }) => sum + length, 0);
  const { bytesWritten } = await file.writev(batch);
  if (bytesWritten === total) return;
  const rest = Buffer.concat(batch).subarray(bytesWritten);
  // A full disk takes a part first; the next call returns the error.
  for (let at = 0; at < rest.length; ) at += (await file.write(rest, at)).bytesWritten;
}

/** The end of a chain of symbolic links, existing or not. */
async function finalTarget(path: string): Promise<string> {
  let target = path;
  for (let hops = 0; hops < SYMLINK_HOPS_MAX; hops++) {
    const found = await lstat(target).catch(absent);
    if (found === null || !found.isSymbolicLink()) return target;
    target = resolve(dirname(target), await readlink(target));
  }
  throw new SandlotError("invalid_path", { path, problem: "too many symbolic links" });
}

function statOrNull(path: string): Promise<Stats | null> {
  return stat(path).catch(absent);
}

function absent(error: NodeJS.ErrnoException): null {
  if (error.code === "ENOENT") return null;
  throw error;
}
