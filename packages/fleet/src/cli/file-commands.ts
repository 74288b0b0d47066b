/**
 * `sandlot ls` and `sandlot cp`: a thread's files, listed and copied. On the sandbox's side a path is written
 * `THREAD:PATH`; a relative path is below the thread's workspace.
 */

import { createReadStream, createWriteStream } from "node:fs";
import { stat } from "node:fs/promises";
import { basename, posix } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { DEFAULT_CWD, type Sandbox, SandlotError, WORKSPACE_DIRECTORIES, WORKSPACE_ROOT } from "@sandlot/contract";
import { withProgress } from "./progress.ts";
import { printTable } from "./table.ts";
import { type TargetOptions, withTarget } from "./target.ts";
import { printJson, type Terminal } from "./terminal.ts";

interface FileCommandOptions extends TargetOptions {
  readonly user?: string;
  readonly json: boolean;
}

interface Place {
  readonly thread: string;
  readonly path: string;
}

export async function filesCommand(
  terminal: Terminal,
  where: string,
  options: FileCommandOptions & { readonly depth?: number },
  signal: AbortSignal,
): Promise<void> {
  const { thread, path: given } = placeOf(where) ?? { thread: where, path: DEFAULT_CWD };
  const path = withoutSlash(given);
  const list = () =>
    withTarget(terminal, options, async (target) => {
      await using lease = await target.acquire({ thread, user: options.user }, "sandlot ls", signal);
      return await lease.sandbox.files.list(path, { depth: options.depth ?? 1 });
    });
  const listing = await withProgress(terminal, `Looking into thread ${thread}`, list, options);
  if (options.json) return printJson(terminal, listing);
  printTable(
    terminal,
    ["KIND", "BYTES", "CHANGED", "PATH"],
    listing.entries.map(({ kind, sizeBytes, modifiedAt, path: entry }) => [
      ...[kind, String(sizeBytes), new Date(modifiedAt).toISOString(), entry],
    ]),
  );
  if (listing.truncated) terminal.error("There is more; ask for a directory below.\n");
}

export async function copyCommand(
  terminal: Terminal,
  from: string,
  to: string,
  options: FileCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const [source, destination] = [placeOf(from), placeOf(to)];
  if ((source === null) === (destination === null)) {
    const problem = "one side is THREAD:PATH in a sandbox, the other a path of this machine";
    throw new SandlotError("invalid_request", { field: "command line", problem });
  }
  const { thread } = source ?? destination ?? { thread: "" };
  const done: Done = { bytes: 0, of: null };
  const copy = () =>
    withTarget(terminal, options, async (target) => {
      await using lease = await target.acquire({ thread, user: options.user }, "sandlot cp", signal);
      if (source !== null) return await download(lease.sandbox, withoutSlash(source.path), to, done);
      return await upload(lease.sandbox, from, destination?.path ?? "", done);
    });
  const copied = await withProgress(terminal, () => howFar(from, done), copy, options);
  if (options.json) printJson(terminal, copied);
  else terminal.error(`${copied.from} -> ${copied.to} (${copied.sizeBytes} bytes)\n`);
}

interface Done {
  bytes: number;
  /** `null` until it is known. */
  of: number | null;
}

function howFar(name: string, { bytes, of }: Done): string {
  const mebibytes = (count: number) => (count / 1024 ** 2).toFixed(1);
  return of === null ? `Copying ${name}` : `Copying ${name}: ${mebibytes(bytes)} of ${mebibytes(of)} MiB`;
}

async function* counted(content: AsyncIterable<Uint8Array>, done: Done) {
  for await (const piece of content) {
    done.bytes += piece.byteLength;
    yield piece;
  }
}

async function download(sandbox: Sandbox, from: string, to: string, done: Done) {
  const { sizeBytes } = await sandbox.files.stat(from);
  done.of = sizeBytes;
  const target = (await isDirectory(to)) ? `${to.replace(/\/$/, "")}/${posix.basename(from)}` : to;
  await pipeline(Readable.from(counted(sandbox.files.download(from), done)), createWriteStream(target));
  return { from, to: target, sizeBytes };
}

async function upload(sandbox: Sandbox, from: string, to: string, done: Done) {
  const { size: sizeBytes, mode } = await stat(from);
  done.of = sizeBytes;
  const there = await sandbox.files.stat(withoutSlash(to)).catch(() => null);
  const target = to.endsWith("/") || there?.kind === "directory" ? posix.join(to, basename(from)) : to;
  await sandbox.files.upload(target, counted(createReadStream(from), done), { mode: mode & 0o777 });
  return { from, to: target, sizeBytes };
}

/**
 * `THREAD:PATH`. A drive letter or a path with a slash before the colon is none. A path that begins with one of the thread's
 * own directories (`uploads/a.pdf`) is below that, any other in its workspace. A slash at the end says that it is a directory.
 */
function placeOf(text: string): Place | null {
  const [, thread, path] = /^([A-Za-z0-9_-]{1,64}):(.*)$/s.exec(text) ?? [];
  if (thread === undefined || path === undefined) return null;
  const isNamed = WORKSPACE_DIRECTORIES.some((name) => path === name || path.startsWith(`${name}/`));
  const whole = posix.resolve(isNamed ? WORKSPACE_ROOT : DEFAULT_CWD, path);
  return { thread, path: path.endsWith("/") && whole !== "/" ? `${whole}/` : whole };
}

function withoutSlash(path: string): string {
  return path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path;
}

async function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}
