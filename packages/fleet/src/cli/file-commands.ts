/**
 * `sandlot ls` and `sandlot cp`: a thread's files, listed and copied. On the sandbox's side a path is written
 * `THREAD:PATH`; a relative path is below the thread's workspace.
 */

import { posix } from "node:path";
import {
  DEFAULT_CWD,
  type FileListing,
  isSandlotError,
  type Sandbox,
  SandlotError,
  WORKSPACE_DIRECTORIES,
  WORKSPACE_ROOT,
} from "@sandlot/contract";
import { beginCopy, type Copy, checkDestination, checkSource, copyIn, copyOut, withoutSlash } from "./copying.ts";
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
      return await listing(lease.sandbox, path, options.depth ?? 1);
    });
  const found = await withProgress(terminal, `Looking into thread ${thread}`, list, options);
  if (options.json) return printJson(terminal, found);
  printTable(
    terminal,
    ["KIND", "BYTES", "CHANGED", "PATH"],
    found.entries.map(({ kind, sizeBytes, modifiedAt, path: entry }) => [
      ...[kind, String(sizeBytes), new Date(modifiedAt).toISOString(), entry],
    ]),
  );
  if (found.truncated) terminal.error("There is more; ask for a directory below.\n");
}

/** Of a file, the file itself, as people know it from `ls`. */
async function listing({ files }: Sandbox, path: string, depth: number): Promise<FileListing> {
  try {
    return await files.list(path, { depth });
  } catch (error) {
    if (isSandlotError(error, "not_a_directory")) return { entries: [await files.stat(path)], truncated: false };
    throw error;
  }
}

export async function copyCommand(
  terminal: Terminal,
  from: string,
  to: string,
  options: FileCommandOptions,
  signal: AbortSignal,
): Promise<void> {
  const [source, destination] = [placeOf(from), placeOf(to)];
  const { thread } = source ?? destination ?? { thread: "" };
  if ((source === null) === (destination === null)) {
    const problem = "one side is THREAD:PATH in a sandbox, the other a path of this machine";
    throw new SandlotError("invalid_request", { field: "command line", problem });
  }
  await (source === null ? checkSource(from) : checkDestination(to));
  const copied = beginCopy(source?.path ?? from, destination?.path ?? to);
  const copy = () =>
    withTarget(terminal, options, async (target) => {
      await using lease = await target.acquire({ thread, user: options.user }, "sandlot cp", signal);
      if (source !== null) await copyOut(lease.sandbox, withoutSlash(source.path), copied, signal);
      else await copyIn(lease.sandbox, copied, signal);
    });
  await withProgress(terminal, () => howFar(from, copied), copy, options);
  if (options.json) return printJson(terminal, copied);
  for (const path of copied.leftOut) terminal.error(`left out, neither file nor directory: ${path}\n`);
  terminal.error(`${withoutSlash(copied.from)} -> ${copied.to} (${extentOf(copied)})\n`);
}

function howFar(name: string, copied: Copy): string {
  return copied.sizeBytes === 0
    ? `Copying ${name}`
    : `Copying ${name}: ${(copied.sizeBytes / 1024 ** 2).toFixed(1)} MiB`;
}

function extentOf({ files, sizeBytes }: Copy): string {
  return files === 1 ? `${sizeBytes} bytes` : `${files} files, ${sizeBytes} bytes`;
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
