/**
 * Descriptors that whoever started the daemon left open by accident. Commands would inherit them, and with them a way out
 * of the sandbox, so they are closed.
 *
 * Node marks its own to be closed when another program is run, and at its start it also marks the first few that it was
 * given. What is not marked was given and has a higher number.
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
      // Closed already: it was the one that listed the others.
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
