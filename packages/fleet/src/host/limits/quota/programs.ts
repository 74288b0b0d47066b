/**
 * The programs that set project quotas, on ext4 and on xfs alike: `chattr` of e2fsprogs assigns a tree to a project;
 * `setquota` and `repquota` of quota set and report a project's limits and usage. No shell, and a deadline for each.
 */

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Tree } from "./takable.ts";

export interface ProjectUse {
  readonly id: number;
  readonly usedKib: number;
  readonly usedFiles: number;
  readonly isLimited: boolean;
}

/** 0 is no limit, here as in the kernel. */
export interface ProjectLimits {
  readonly kib: number;
  readonly files: number;
}

export const UNLIMITED: ProjectLimits = { kib: 0, files: 0 };

const run = promisify(execFile);
const ENVIRONMENT = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" };
const TIMEOUT_MS = 10_000;
/** Every file of an existing tree is changed. */
const TREE_TIMEOUT_MS = 60_000;
/** They fit a command line even with the longest paths. */
const DIRECTORIES_AT_ONCE = 200;
/** Enough for some hundred thousand projects. */
const REPORT_MAX_BYTES = 64 * 1024 * 1024;

/** Assigns the tree, and new files in it, to the project. Nothing that could change the tree may run. */
export async function giveProject({ root, directories, hasFiles }: Tree, id: number): Promise<void> {
  await forEach(directories, ["-p", String(id), "+P"]);
  if (hasFiles) await call("chattr", ["-R", "-p", String(id), root], TREE_TIMEOUT_MS);
}

export async function takeProject({ root, directories }: Tree): Promise<void> {
  await forEach(directories, ["-P"]);
  await call("chattr", ["-R", "-p", "0", root], TREE_TIMEOUT_MS);
}

/** Only directories pass a project on to new entries. */
async function forEach(directories: readonly string[], change: readonly string[]): Promise<void> {
  for (let from = 0; from < directories.length; from += DIRECTORIES_AT_ONCE)
    await call("chattr", [...change, ...directories.slice(from, from + DIRECTORIES_AT_ONCE)], TREE_TIMEOUT_MS);
}

export async function setLimits(mountPoint: string, id: number, { kib, files }: ProjectLimits): Promise<void> {
  await call("setquota", ["-P", String(id), "0", String(kib), "0", String(files), mountPoint]);
}

/** Every project that the kernel has a record of, also unused ones. */
export async function projectUses(mountPoint: string): Promise<readonly ProjectUse[]> {
  return parseReport(await call("repquota", ["-P", "-n", "-v", "-O", "csv", mountPoint]));
}

/** `#1234,ok,ok,8,0,1024,,2,0,10,`: state, then used, soft, hard and grace of blocks (KiB), then of files. */
export function parseReport(text: string): readonly ProjectUse[] {
  return text.split("\n").flatMap((line) => {
    const found = /^#(\d+),[^,]*,[^,]*,(\d+),(\d+),(\d+),[^,]*,(\d+),(\d+),(\d+),/.exec(line);
    if (found === null) return [];
    const [id = 0, usedKib = 0, softKib = 0, hardKib = 0, usedFiles = 0, softFiles = 0, hardFiles = 0] = found
      .slice(1)
      .map(Number);
    return [{ id, usedKib, usedFiles, isLimited: softKib + hardKib + softFiles + hardFiles > 0 }];
  });
}

async function call(program: string, args: readonly string[], timeout = TIMEOUT_MS): Promise<string> {
  try {
    const { stdout } = await run(program, args, { env: ENVIRONMENT, timeout, maxBuffer: REPORT_MAX_BYTES });
    return stdout;
  } catch (error) {
    const { stderr, code, killed } = error as { stderr?: string; code?: unknown; killed?: boolean };
    const why = killed === true ? `no answer within ${timeout} ms` : stderr?.trim() || `it ended with ${code}`;
    throw new Error(`${program}: ${code === "ENOENT" ? "not installed" : why}`, { cause: error });
  }
}
