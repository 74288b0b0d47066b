/**
 * Which runtime directories (`runtime-directory.ts`) are in use, and the removal of those that are not: each version of the
 * daemon, of Node and of the machine's libraries has one.
 *
 *   frames/runtime-<key>          the directory; its time of change is when a process last began to use it
 *   frames/runtime-<key>.uses/    a symbolic link for each sandbox that mounts it, to what is written down of that sandbox
 *
 * Invariants
 * - A sandbox has its link before it mounts the directory, and what is written down of it is there before the link is and
 *   until the sandbox is gone. So a link that leads nowhere is of a sandbox that is gone.
 * - A directory goes when no link leads anywhere and no process has begun to use it for an hour. While there is a sandbox
 *   without a link, made by a release that wrote none, all of them stay.
 * - It is first renamed, then looked at once more: a process that has begun to use it meanwhile gets it back.
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

/** Many times what is between beginning to use one and the link, also on a machine that does something else. */
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
    if (isErrno(error, "ENOENT")) return false;
    throw error;
  }
}

/** `object` is the path of what is written down of a sandbox that will mount it. */
export function noteUse(path: string, object: string): void {
  const uses = path + USES;
  for (let tries = 0; ; tries++) {
    mkdirSync(uses, { recursive: true, mode: 0o700 });
    try {
      symlinkSync(object, join(uses, basename(object)));
      return;
    } catch (error) {
      // Made a second time, after an answer was lost.
      if (isErrno(error, "EEXIST")) return;
      // Another process has removed the directory of links in between, because it was empty.
      if (!isErrno(error, "ENOENT") || tries === TRIES_MAX) throw error;
    }
  }
}

/** Removes every directory that is not used any more, but never `current`. `objects` are where sandboxes are written down. */
export function sweepUnused(parent: string, objects: readonly string[], current: string, nowMs: number): void {
  const names = readdirSync(parent).filter((name) => /^runtime-[0-9a-f]+$/.test(name));
  const used = new Map(names.map((name) => [name, namesIn(join(parent, name) + USES)]));
  // Afterwards: what has a link by now is written down by now.
  const linked = new Set([...used.values()].flat());
  const isKnown = objects.flatMap(namesIn).every((name) => isUnfinished(name) || linked.has(name));
  for (const [name, uses] of used) {
    const path = join(parent, name);
    const isUsed = dropLost(path + USES, uses);
    if (path !== current && isKnown && !isUsed) removeUnused(path, nowMs);
  }
}

function removeUnused(path: string, nowMs: number): void {
  const isUnused = (at: string) => nowMs - statSync(at).mtimeMs > UNUSED_MS;
  if (!isUnused(path)) return;
  // Under the name of one that is half made: should this process be killed, it goes as such.
  const going = `${path}.${process.pid}~`;
  renameSync(path, going);
  if (!isUnused(going) && !existsSync(path)) {
    renameSync(going, path);
    return;
  }
  rmSync(going, { recursive: true, force: true });
}

/** Removes links of sandboxes that are gone, and their directory with the last. Whether there are others. */
function dropLost(directory: string, uses: readonly string[]): boolean {
  for (const use of uses) if (!existsSync(join(directory, use))) rmSync(join(directory, use), { force: true });
  try {
    rmdirSync(directory);
    return false;
  } catch (error) {
    return !isErrno(error, "ENOENT");
  }
}

function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    if (isErrno(error, "ENOENT")) return [];
    throw error;
  }
}

/** What is about to be written down, or to go. */
function isUnfinished(name: string): boolean {
  return name.startsWith(".") || name.endsWith("~");
}

function isErrno(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}
