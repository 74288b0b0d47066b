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
    // No Linux. What such a name is for there can be guessed, but not twice the same.
    const chance = [process.hrtime.bigint().toString(16), ...Array.from({ length: 3 }, eightDigits)].join("");
    return chance.slice(-32);
  }
}

function eightDigits(): string {
  return Math.floor((1 + Math.random()) * 2 ** 32)
    .toString(16)
    .slice(1);
}
