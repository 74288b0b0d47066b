/**
 * A directory with its parents, like `mkdirSync` with `recursive`: that one never returns where the system reports "no
 * such file" although the parent exists, as below `/proc`.
 */

import { mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";

/** Returns the first one created, or `undefined` when all existed. */
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

/** False when another process was faster. */
function makeOne(path: string, mode: number): boolean {
  try {
    mkdirSync(path, { mode });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST" && statSync(path).isDirectory()) return false;
    throw error;
  }
}
