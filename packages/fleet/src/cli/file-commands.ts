/**
 * `sandlot ls` and `sandlot cp`: list and copy a thread's files. `-t` names the thread; `cp` then writes the sandbox's
 * side as `:PATH`. Both also take `THREAD:PATH`. A relative path is below the thread's workspace.
 *
 * Listing, or copying from, a missing thread is refused and creates nothing.
 */

import { posix } from "node:path";
import {
  DEFAULT_CWD,
  type FileListing,
  isoTime,
  isSandlotError,
  type Sandbox,
  SandlotError,
  WORKSPACE_DIRECTORIES,
  WORKSPACE_ROOT,
} from "@sandlot/contract";
import { namedThread } from "./named-thread.ts";
import { withProgress } from "./progress.ts";
import { printTable } from "./table.ts";
import { requireThread, type TargetOptions, withTarget } from "./target.ts";
import { printJson, type Terminal } from "./terminal.ts";
import {
  beginCopy,
  type Copy,
  checkDestination,
  checkSource,
  copyFromStream,
  copyIn,
  copyOut,
  copyToStream,
  withoutSlash,
} from "./tree-transfer.ts";

interface FileCommandOptions extends TargetOptions {
  readonly thread?: string;
  readonly user?: string;
  readonly json: boolean;
}

interface Place {
  readonly thread: string;
  readonly path: string;
}

export async function filesCommand(
  terminal: Terminal,
  where: string | undefined,
  options: FileCommandOptions & { readonly depth?: number },
  signal: AbortSignal,
): Promise<void> {
  const { thread, path: given } = whereOf(where, options.thread);
  const path = withoutSlash(given);
  const list = () =>
    withTarget(terminal, options, async (target) => {
      await requireThread(target, { thread, user: options.user });
      await using lease = await target.acquire({ thread, user: options.user }, "sandlot ls", signal);
      return await listing(lease.sandbox, path, options.depth ?? 1);
    });
  const found = await withProgress(terminal, `Looking into thread ${thread}`, list);
  if (options.json) return printJson(terminal, found);
  printTable(
    terminal,
    ["KIND", "BYTES", "CHANGED", "PATH"],
    found.entries.map(({ kind, sizeBytes, modifiedAt, path: entry }) => [
      ...[kind, String(sizeBytes), isoTime(modifiedAt), entry],
    ]),
  );
  if (found.truncated) terminal.error("There is more; ask for a directory below.\n");
}

/** `-t THREAD [PATH]`, `THREAD` or `THREAD:PATH`. */
function whereOf(where: string | undefined, thread: string | undefined): Place {
  if (thread !== undefined) return { thread, path: where === undefined ? DEFAULT_CWD : pathInside(where) };
  if (where !== undefined) return placeOf(where, undefined) ?? { thread: where, path: DEFAULT_CWD };
  return { thread: namedThread({ thread }), path: DEFAULT_CWD };
}

/** For a file, the file itself, as `ls` does. */
async function listing({ files }: Sandbox, path: string, depth: number): Promise<FileListing> {
  try {
    return await files.list(path, { depth });
  } catch (error) {
    if (isSandlotError(error, "not_a_directory")) return { entries: [await files.stat(path)], truncated: false };
    throw error;
  }
}

/** Resolves with whether everything was copied. `-` is standard output, or standard input. */
export async function copyCommand(
  terminal: Terminal,
  from: string,
  to: string,
  options: FileCommandOptions,
  signal: AbortSignal,
): Promise<boolean> {
  const [source, destination] = [placeOf(from, options.thread), placeOf(to, options.thread)];
  const { thread } = source ?? destination ?? { thread: "" };
  if ((source === null) === (destination === null)) {
    const problem =
      "one side is in a sandbox (THREAD:PATH, or :PATH with -t), the other a path of this machine, or - for standard input and output";
    throw new SandlotError("invalid_request", { field: "command line", problem });
  }
  const streamed = (source === null ? from : to) === "-";
  if (!streamed) await (source === null ? checkSource(from) : checkDestination(to));
  const copied = beginCopy(source?.path ?? from, destination?.path ?? to);
  const name = { thread, user: options.user };
  const copy = () =>
    withTarget(terminal, options, async (target) => {
      if (source !== null) await requireThread(target, name);
      await using lease = await target.acquire(name, "sandlot cp", signal);
      if (source !== null && streamed) await copyToStream(lease.sandbox, copied, terminal, signal);
      else if (source !== null) await copyOut(lease.sandbox, withoutSlash(source.path), copied, signal);
      else if (streamed) await copyFromStream(lease.sandbox, copied, terminal.stdin, signal);
      else await copyIn(lease.sandbox, copied, signal);
    });
  // A progress line must not mix with content on standard output.
  await (streamed && source !== null ? copy() : withProgress(terminal, () => howFar(from, copied), copy));
  const isWhole = copied.leftOut.length === 0;
  if (streamed && source !== null) return isWhole;
  if (options.json) {
    printJson(terminal, copied);
    return isWhole;
  }
  for (const path of copied.leftOut) terminal.error(`left out, neither file nor directory: ${path}\n`);
  terminal.error(`${withoutSlash(copied.from)} -> ${copied.to} (${extentOf(copied)})\n`);
  if (!isWhole) terminal.error(`Error: ${copied.leftOut.length} left out; pack them with tar to copy links.\n`);
  return isWhole;
}

function howFar(name: string, copied: Copy): string {
  return copied.sizeBytes === 0
    ? `Copying ${name}`
    : `Copying ${name}: ${(copied.sizeBytes / 1024 ** 2).toFixed(1)} MiB`;
}

function extentOf({ files, sizeBytes }: Copy): string {
  return files === 1 ? `${sizeBytes} bytes` : `${files} files, ${sizeBytes} bytes`;
}

/** `THREAD:PATH`, or `:PATH` with `-t`. A drive letter or a path with a slash before the colon is no thread. */
function placeOf(text: string, named: string | undefined): Place | null {
  if (named !== undefined && text.startsWith(":")) return { thread: named, path: pathInside(text.slice(1)) };
  const [, thread, path] = /^([A-Za-z0-9_-]{1,64}):(.*)$/s.exec(text) ?? [];
  if (thread === undefined || path === undefined) return null;
  if (named === undefined || named === thread) return { thread, path: pathInside(path) };
  const problem = `-t names thread ${named}, and ${text} thread ${thread}; write :${path}`;
  throw new SandlotError("invalid_request", { field: "command line", problem });
}

/**
 * A path that begins with one of the thread's own directories (`uploads/a.pdf`) is below that, any other in its
 * workspace. A trailing slash means a directory.
 */
function pathInside(path: string): string {
  const isNamed = WORKSPACE_DIRECTORIES.some((name) => path === name || path.startsWith(`${name}/`));
  const whole = posix.resolve(isNamed ? WORKSPACE_ROOT : DEFAULT_CWD, path);
  return path.endsWith("/") && whole !== "/" ? `${whole}/` : whole;
}
