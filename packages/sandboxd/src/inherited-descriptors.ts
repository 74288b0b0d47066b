/**
 * Closes descriptors that the daemon's starter left open by accident. Commands would inherit them and could escape the
 * sandbox through them.
 *
 * Node marks its own as close-on-exec, and at its start also the first few that it inherited. An unmarked one was
 * inherited and has a higher number.
 */

import { closeSync, readdirSync, readFileSync } from "node:fs";

const CLOSE_ON_EXEC = 0o2000000;
const STDERR = 2;

export function closeInherited(keep: readonly number[]): void {
  for (const name of list("/proc/self/fd")) {
    const fd = Number(name);
    if (fd <= STDERR || keep.includes(fd) || isMarked(fd)) continue;
    try {
      closeSync(fd);
    } catch {
      // Closed already: it was the descriptor that listed the others.
    }
  }
}

function isMarked(fd: number): boolean {
  try {
    const flags = /^flags:\s+([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1];
    return flags === undefined || (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) !== 0;
  } catch {
    return true;
  }
}

function list(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}
