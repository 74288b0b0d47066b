/**
 * Copies files and whole directories between this machine and a sandbox.
 *
 * Invariants
 * - The destination is as in `cp -r`: a directory that exists or ends with a slash receives the copy under its own
 *   name; otherwise the copy gets the given name.
 * - A file of this machine is replaced whole or not at all. In the sandbox, writing is atomic by itself.
 * - Entries of a directory that are neither file nor directory (links, sockets, devices) are skipped and reported, so
 *   nothing is followed out of the named directory. A copy that skipped something is not a success.
 * - Names from a sandbox never lead out of the destination directory.
 */

import { randomUUID } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { mkdir, readdir, realpath, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join, posix } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type FileStat, type Sandbox, SandlotError } from "@sandlot/contract";
import { onThisMachine } from "./host-trouble.ts";
import type { Terminal } from "./terminal.ts";

/** A running copy, and in the end its result. */
export interface Copy {
  readonly from: string;
  /** The actual destination. */
  to: string;
  files: number;
  sizeBytes: number;
  readonly leftOut: string[];
}

export function beginCopy(from: string, to: string): Copy {
  return { from, to, files: 0, sizeBytes: 0, leftOut: [] };
}

/** Refuses an invalid source before a sandbox is acquired. */
export async function checkSource(from: string): Promise<void> {
  const found = await onThisMachine("from", from, () => stat(from));
  if (!found.isFile() && !found.isDirectory())
    throw new SandlotError("invalid_request", { field: "from", problem: `${from} is neither a file nor a directory` });
}

/** The same for the destination: a directory with a trailing slash is created, any other must exist. */
export async function checkDestination(to: string): Promise<void> {
  if (to.endsWith("/")) await onThisMachine("to", to, () => mkdir(to, { recursive: true }));
  else await onThisMachine("to", dirname(to), () => stat(dirname(to)));
}

export async function copyIn(sandbox: Sandbox, copy: Copy, signal: AbortSignal): Promise<void> {
  const target = withoutSlash(copy.to);
  const there = await sandbox.files.stat(target).catch(() => null);
  const isInto = copy.to.endsWith("/") || there?.kind === "directory";
  // Resolved, because `.` and `..` are no names.
  const name = basename(await onThisMachine("from", copy.from, () => realpath(copy.from)));
  copy.to = isInto ? posix.join(target, name) : target;
  await putIn(sandbox, copy, copy.from, copy.to, signal);
}

/** One file, from a pipe. */
export async function copyFromStream(
  sandbox: Sandbox,
  copy: Copy,
  stdin: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): Promise<void> {
  if (copy.to.endsWith("/")) {
    const problem = "standard input has no name; write the name of the file";
    throw new SandlotError("invalid_request", { field: "to", problem });
  }
  await sandbox.files.upload(copy.to, counted(stdin, copy, signal));
  copy.files += 1;
}

/** One file, to standard output. The copy ends when the reader stops, as in a pipe. */
export async function copyToStream(
  sandbox: Sandbox,
  copy: Copy,
  terminal: Pick<Terminal, "write">,
  signal: AbortSignal,
): Promise<void> {
  const found = await sandbox.files.stat(copy.from);
  if (found.kind === "directory") {
    const problem = `${copy.from} is a directory; use \`sandlot exec -- tar c\` to stream one`;
    throw new SandlotError("invalid_request", { field: "from", problem });
  }
  for await (const piece of counted(sandbox.files.download(copy.from), copy, signal))
    if (!(await terminal.write("stdout", piece))) return;
  copy.files += 1;
}

async function putIn(sandbox: Sandbox, copy: Copy, from: string, to: string, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const found = await onThisMachine("from", from, () => stat(from));
  if (!found.isDirectory()) {
    const content = counted(createReadStream(from), copy, signal);
    await onThisMachine("from", from, () => sandbox.files.upload(to, content, { mode: found.mode & 0o777 }));
    copy.files += 1;
    return;
  }
  await sandbox.files.mkdir(to);
  for (const entry of await onThisMachine("from", from, () => readdir(from, { withFileTypes: true }))) {
    const path = join(from, entry.name);
    if (entry.isFile() || entry.isDirectory()) await putIn(sandbox, copy, path, posix.join(to, entry.name), signal);
    else copy.leftOut.push(path);
  }
}

export async function copyOut(sandbox: Sandbox, from: string, copy: Copy, signal: AbortSignal): Promise<void> {
  const found = await sandbox.files.stat(from);
  if (await isDirectory(copy.to)) copy.to = join(copy.to, posix.basename(from));
  if (found.kind === "directory") await takeDirectory(sandbox, copy, from, copy.to, signal);
  else await takeFile(sandbox, copy, found, copy.to, signal);
}

async function takeDirectory(sandbox: Sandbox, copy: Copy, from: string, to: string, signal: AbortSignal) {
  await onThisMachine("to", to, () => mkdir(to, { recursive: true }));
  const { entries, truncated } = await sandbox.files.list(from);
  if (truncated) {
    const problem = `${from} has more than ${entries.length} entries; pack it in the sandbox (tar) and copy the archive`;
    throw new SandlotError("invalid_request", { field: "from", problem });
  }
  for (const entry of entries) {
    const name = nameBelow(from, entry.path);
    if (entry.kind === "directory") await takeDirectory(sandbox, copy, entry.path, join(to, name), signal);
    else if (entry.kind === "file") await takeFile(sandbox, copy, entry, join(to, name), signal);
    else copy.leftOut.push(entry.path);
  }
}

/** Written under a temporary name: an interrupted copy must not look complete. */
async function takeFile(sandbox: Sandbox, copy: Copy, found: FileStat, to: string, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const content = Readable.from(counted(sandbox.files.download(found.path), copy, signal));
  await onThisMachine("to", to, async () => {
    const target = await plainTarget(to);
    if (target === null) return await pipeline(content, createWriteStream(to), { signal });
    const draft = join(dirname(target), `.sandlot-draft-${randomUUID()}`);
    try {
      await pipeline(content, createWriteStream(draft, { flags: "wx", mode: found.mode & 0o777 }), { signal });
      await rename(draft, target);
    } catch (error) {
      await rm(draft, { force: true });
      throw error;
    }
  });
  copy.files += 1;
}

/** The file behind a link, or the name of a new one; `null` for a device or a pipe, which is written directly. */
async function plainTarget(path: string): Promise<string | null> {
  const found = await stat(path).catch(() => null);
  if (found === null) return path;
  return found.isFile() || found.isDirectory() ? realpath(path) : null;
}

function nameBelow(directory: string, path: string): string {
  const name = posix.basename(path);
  if (posix.join(directory, name) === path && name !== "..") return name;
  throw new SandlotError("invalid_path", { path, problem: `it is not in ${directory}` });
}

async function* counted(content: AsyncIterable<Uint8Array>, copy: Copy, signal: AbortSignal) {
  for await (const piece of content) {
    signal.throwIfAborted();
    copy.sizeBytes += piece.byteLength;
    yield piece;
  }
}

async function isDirectory(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => null);
  return found?.isDirectory() === true;
}

export function withoutSlash(path: string): string {
  return path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;
}
