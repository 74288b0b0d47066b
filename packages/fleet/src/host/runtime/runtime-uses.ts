/**
 * Tracks which runtime directories (`runtime-directory.ts`) are in use, and removes the others: each version of the
 * daemon, of Node and of the machine's libraries has one.
 *
 *   frames/runtime-<key>          the directory; its modification time is when a process last began to use it
 *   frames/runtime-<key>.uses/    a symbolic link for each sandbox that mounts it, to that sandbox's record
 *
 * Invariants
 * - A sandbox has its link before it mounts the directory. Its record exists before the link and until the sandbox is
 *   gone. So a dangling link belongs to a sandbox that is gone.
 * - A directory is removed when all links dangle and no process began to use it for an hour. While a sandbox without a
 *   link exists, made by a release that wrote none, all directories stay.
 * - It is first renamed, then checked again: if a process began to use it meanwhile, it is renamed back.
 */

import {
  existsSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
} from "node:fs";
import { basename, join } from "node:path";
import { errnoOf, namesIn, unlessMissing } from "../../world/disk-trouble.ts";

/** Many times the interval between beginning to use one and the link, even on a busy machine. */
const UNUSED_MS = 3_600_000;
const USES = ".uses";
const TRIES_MAX = 10;

/** Notes that a process begins to use it. `false` when it is gone. */
export function beginUse(path: string, nowMs: number): boolean {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return false;
  if (nowMs - stats.mtimeMs < UNUSED_MS / 2) return true;
  try {
    utimesSync(path, nowMs / 1_000, nowMs / 1_000);
    return true;
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return false;
    throw error;
  }
}

/** `object` is the path of the record of a sandbox that will mount it. */
export function noteUse(path: string, object: string): void {
  const uses = path + USES;
  for (let tries = 0; ; tries++) {
    mkdirSync(uses, { recursive: true, mode: 0o700 });
    try {
      symlinkSync(object, join(uses, basename(object)));
      return;
    } catch (error) {
      // Repeated after a lost response.
      if (errnoOf(error) === "EEXIST") return;
      // Another process removed the empty directory of links in between.
      if (errnoOf(error) !== "ENOENT" || tries === TRIES_MAX) throw error;
    }
  }
}

export interface SweepParts {
  readonly parent: string;
  /** Where sandboxes are written down. */
  readonly objects: readonly string[];
  /** The directory in use, which stays. */
  readonly current: string;
  readonly nowMs: number;
  /** Hears why a directory could not be removed. The others still go. */
  readonly onProblem: (error: unknown) => void;
}

/** Removes every directory that is not used any more. Another process may do the same at the same time. */
export function sweepUnused({ parent, objects, current, nowMs, onProblem }: SweepParts): void {
  const names = readdirSync(parent).filter((name) => /^runtime-[0-9a-f]+$/.test(name));
  const used = new Map(names.map((name) => [name, namesIn(join(parent, name) + USES)]));
  // Read after the links: a sandbox with a link has its record by now.
  const linked = new Set([...used.values()].flat());
  const isKnown = objects.flatMap(namesIn).every((name) => isUnfinished(name) || linked.has(name));
  for (const [name, uses] of used) {
    const path = join(parent, name);
    try {
      const isUsed = dropLost(path + USES, uses);
      // What is missing by now, another process has removed.
      if (path !== current && isKnown && !isUsed) unlessMissing(() => removeUnused(path, nowMs));
    } catch (error) {
      onProblem(error);
    }
  }
}

function removeUnused(path: string, nowMs: number): void {
  const isUnused = (at: string) => nowMs - statSync(at).mtimeMs > UNUSED_MS;
  if (!isUnused(path)) return;
  // Named like a half-made one: if this process is killed, a later sweep removes it.
  const going = `${path}.${process.pid}~`;
  renameSync(path, going);
  if (!isUnused(going) && !existsSync(path)) {
    renameSync(going, path);
    return;
  }
  rmSync(going, { recursive: true, force: true });
}

/** Removes links of sandboxes that are gone, and their directory with the last. Returns whether others are left. */
function dropLost(directory: string, uses: readonly string[]): boolean {
  for (const use of uses) if (!existsSync(join(directory, use))) rmSync(join(directory, use), { force: true });
  try {
    rmdirSync(directory);
    return false;
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return false;
    if (errnoOf(error) === "ENOTEMPTY") return true;
    throw error;
  }
}

/** About to be written, or to be removed. */
function isUnfinished(name: string): boolean {
  return name.startsWith(".") || name.endsWith("~");
}
