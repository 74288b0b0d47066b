/**
 * Random digits from the kernel. `node:crypto` would add five milliseconds to every start, and a megabyte that every
 * command's fork copies; this reads one small file.
 */

import { readFileSync } from "node:fs";

/** Unguessable hexadecimal digits, at most 32. */
export function randomDigits(count: number): string {
  return uuid().replaceAll("-", "").slice(0, count);
}

function uuid(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/uuid", "latin1");
  } catch {
    // Not Linux. These digits can be guessed, but they never repeat: the last ones change first.
    return [...process.hrtime.bigint().toString(16)].reverse().join("").padEnd(32, "0");
  }
}
