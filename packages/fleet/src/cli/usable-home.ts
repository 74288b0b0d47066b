/**
 * Refuses a `$SANDLOT_HOME` that cannot be written before anything is opened in it, in words about the home. Otherwise it
 * would be the store, the keys or the audit log that fails, whichever comes first.
 */

import { constants } from "node:fs";
import { access, mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { SandlotError } from "@sandlot/contract";

/** Makes the directory where it is missing. */
export async function makeUsable(home: string): Promise<void> {
  try {
    await make(home);
    await access(home, constants.W_OK | constants.X_OK);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : String(error);
    const problem = `${home} cannot be written (${code}); set SANDLOT_HOME to a directory of your own`;
    throw new SandlotError("config_invalid", { path: "home", problem }, { cause: error });
  }
}

/** Level by level: in /proc and its like, Node's own recursive mkdir never comes back. */
async function make(path: string): Promise<void> {
  const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
  if (found?.isDirectory() === true) return;
  if (found === null && dirname(path) !== path) await make(dirname(path));
  await mkdir(path, { mode: 0o700 }).catch(async (error: NodeJS.ErrnoException) => {
    // Somebody else was faster.
    if (error.code !== "EEXIST" || !(await stat(path)).isDirectory()) throw error;
  });
}
