/**
 * `sandlot ls` and `sandlot cp`: a thread's files, listed and copied. On the sandbox's side a path is written
 * `THREAD:PATH`; a relative path is below the thread's workspace.
 */

import { createReadStream, createWriteStream } from "node:fs";
import { stat } from "node:fs/promises";
import { basename, posix } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { DEFAULT_CWD, type Sandbox, SandlotError } from "@sandlot/contract";
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
  const { thread, path } = placeOf(where) ?? { thread: where, path: DEFAULT_CWD };
  const listing = await withTarget(terminal, options, async (target) => {
    await using lease = await target.acquire({ thread, user: options.user }, "sandlot ls", signal);
    return await lease.sandbox.files.list(path, { depth: options.depth ?? 1 });
  });
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
  const copied = await withTarget(terminal, options, async (target) => {
    await using lease = await target.acquire({ thread, user: options.user }, "sandlot cp", signal);
    if (source !== null) return await download(lease.sandbox, source.path, to);
    return await upload(lease.sandbox, from, destination?.path ?? "");
  });
  if (options.json) printJson(terminal, copied);
  else terminal.error(`${copied.from} -> ${copied.to} (${copied.sizeBytes} bytes)\n`);
}

async function download(sandbox: Sandbox, from: string, to: string) {
  const { sizeBytes } = await sandbox.files.stat(from);
  const target = (await isDirectory(to)) ? `${to.replace(/\/$/, "")}/${posix.basename(from)}` : to;
  await pipeline(Readable.from(sandbox.files.download(from)), createWriteStream(target));
  return { from, to: target, sizeBytes };
}

async function upload(sandbox: Sandbox, from: string, to: string) {
  const { size: sizeBytes, mode } = await stat(from);
  const there = await sandbox.files.stat(to).catch(() => null);
  const target = to.endsWith("/") || there?.kind === "directory" ? posix.join(to, basename(from)) : to;
  await sandbox.files.upload(target, createReadStream(from), { mode: mode & 0o777 });
  return { from, to: target, sizeBytes };
}

/** `THREAD:PATH`. A drive letter or a path with a slash before the colon is none. */
function placeOf(text: string): Place | null {
  const [, thread, path] = /^([A-Za-z0-9_-]{1,64}):(.*)$/s.exec(text) ?? [];
  return thread === undefined || path === undefined ? null : { thread, path: posix.resolve(DEFAULT_CWD, path) };
}

async function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}
