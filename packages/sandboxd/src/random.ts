/**
 * Chance, from the kernel. `node:crypto` would be five milliseconds of every start, and a megabyte that every command's fork
 * copies; this is one small file.
 */

import { readFileSync } from "node:fs";

/** Hexadecimal digits that nobody can guess, at most 32. */
export function randomDigits(count: number): string {
  return uuid().replaceAll("-", "").slice(0, count);
}

function uuid(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/uuid", "latin1");
  } catch {
    // No Linux. What such digits are for there can be guessed, but they are not the same twice: the last ones change first.
    return [...process.hrtime.bigint().toString(16)].reverse().join("").padEnd(32, "0");
  }
}
