/**
 * What every process of an exec carries, whatever it does: unlike its environment, its session and its parent, this is
 * nothing that a program cleans up when it goes into the background.
 *
 * It is the choice of what a core dump would hold, which children inherit and which `exec` keeps. Sandboxes make no core
 * dumps, so what is chosen means nothing. The daemon puts it on just before it starts something, so that there is no moment
 * at which the new process is without.
 *
 * A process that is closed to its own account (see `supervisor.sh`) cannot open this file itself. What it came from has
 * opened it then, and hands the descriptor on.
 *
 * There are 512, and they are used again; `process-table.ts` deals with that.
 */

import { closeSync, openSync, readFileSync, writeSync } from "node:fs";

const BADGES = 512;

let fd: number | null | undefined;

/** The file is open already. */
export function useBadgeDescriptor(given: number): void {
  fd = given;
}

/** Of the exec with this key. */
export function badgeOf(key: string): number {
  return Number.parseInt(key, 36) % BADGES;
}

/** From now on whatever is started carries it. Where the system has no such thing, nothing does. */
export function wearBadge(key: string): void {
  if (fd === undefined) fd = attempt(() => openSync("/proc/self/coredump_filter", "w"));
  if (fd === null) return;
  const worn = fd;
  if (attempt(() => writeSync(worn, String(badgeOf(key)), 0)) !== null) return;
  attempt(() => closeSync(worn));
  fd = null;
}

/** What a process carries; `null` when it has ended, or there are no badges. */
export function readBadge(pid: number): number | null {
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
