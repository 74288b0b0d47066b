/**
 * A directory with everything above it, as `mkdirSync` with `recursive` makes it: that one never returns where the system
 * refuses with "no such file" although the directory above is there, as it does below `/proc`.
 */

import { mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";

/** Answers with the first one that was made, or `undefined` when all were there. */
export function makeDirectories(path: string, mode: number): string | undefined {
  try {
    mkdirSync(path, { mode });
    return path;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && statSync(path).isDirectory()) return undefined;
    if (code !== "ENOENT" || dirname(path) === path) throw error;
    const first = makeDirectories(dirname(path), mode);
    return makeOne(path, mode) ? (first ?? path) : first;
  }
}

/** False when somebody else was faster. */
function makeOne(path: string, mode: number): boolean {
  try {
    mkdirSync(path, { mode });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST" && statSync(path).isDirectory()) return false;
    throw error;
  }
}
