/**
 * Tags every process of an exec. Unlike its environment, its session and its parent, a program does not change the tag
 * when it goes into the background.
 *
 * The tag is the process's core dump filter (`/proc/self/coredump_filter`), which children inherit and `exec` keeps.
 * Sandboxes make no core dumps, so the filter has no other meaning. The daemon sets its own filter just before it
 * starts a process, so the new process always has it.
 *
 * A process that is closed to its own account (see `supervisor.sh`) cannot open this file itself. Its parent opens it
 * and passes the descriptor on.
 *
 * There are 512 tags, and they are reused; `process-table.ts` handles that.
 */

import { closeSync, openSync, readFileSync, writeSync } from "node:fs";

const TAGS = 512;

let fd: number | null | undefined;

/** The file is open already. */
export function useTagDescriptor(given: number): void {
  fd = given;
}

/** The tag of the exec with this key. */
export function tagOf(key: string): number {
  return Number.parseInt(key, 36) % TAGS;
}

/** Gives every later process the tag of this key. Does nothing where the kernel has no filter. */
export function tagNextChild(key: string): void {
  if (fd === undefined) fd = attempt(() => openSync("/proc/self/coredump_filter", "w"));
  if (fd === null) return;
  const opened = fd;
  if (attempt(() => writeSync(opened, String(tagOf(key)), 0)) !== null) return;
  attempt(() => closeSync(opened));
  fd = null;
}

/** The tag of a process; `null` when it has ended, or there are no tags. */
export function readTag(pid: number): number | null {
  if (fd === null || fd === undefined) return null;
  const text = attempt(() => readFileSync(`/proc/${pid}/coredump_filter`, "latin1"));
  return text === null ? null : Number.parseInt(text, 16);
}

function attempt<T>(work: () => T): T | null {
  try {
    return work();
  } catch {
    return null;
  }
}
