/**
 * A random number per home. It decides where in the machine's ids the home's own range begins. Homes in containers have
 * the same path and cannot see each other's reservations, but hardly ever the same number.
 *
 *   <home>/ids/number     the number
 *
 * Invariant: one process writes the number once and completely; all others read it.
 */

import { randomInt } from "node:crypto";
import { linkSync, readFileSync, rmSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Far more than there are pairs of ids. */
const NUMBERS = 2 ** 47;

export function homeNumber(directory: string): number {
  const path = join(directory, "number");
  return readNumber(path) ?? makeNumber(path);
}

function readNumber(path: string): number | null {
  try {
    const number = Number(readFileSync(path, "utf8"));
    if (Number.isSafeInteger(number) && number > 0) return number;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
  // Empty after a power loss.
  rmSync(path, { force: true });
  return null;
}

function makeNumber(path: string): number {
  const number = randomInt(1, NUMBERS);
  const draft = `${path}.${number}~`;
  writeFileSync(draft, String(number), { mode: 0o600, flag: "wx", flush: true });
  try {
    linkSync(draft, path);
    return number;
  } catch (error) {
    const made = (error as NodeJS.ErrnoException).code === "EEXIST" ? readNumber(path) : null;
    if (made === null) throw error;
    return made;
  } finally {
    unlinkSync(draft);
  }
}
