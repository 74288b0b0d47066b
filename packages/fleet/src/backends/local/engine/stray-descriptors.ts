/**
 * Descriptors that this process inherited and that every child would inherit. A sandbox could use them through its
 * init, so a start covers them with `/dev/null`.
 *
 * Node marks its own descriptors as close-on-exec. Descriptors without the mark were there before Node.
 */

import { readdirSync, readFileSync } from "node:fs";

const CLOSE_ON_EXEC = 0o2000000;
const STDERR = 2;

export function strayDescriptors(): readonly number[] {
  return list()
    .map(Number)
    .filter((fd) => fd > STDERR && isInherited(fd));
}

function list(): readonly string[] {
  try {
    return readdirSync("/proc/self/fd");
  } catch {
    return [];
  }
}

function isInherited(fd: number): boolean {
  try {
    const flags = /^flags:\s+([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1];
    return flags !== undefined && (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0;
  } catch {
    // Closed already: it was the descriptor that listed the others.
    return false;
  }
}
