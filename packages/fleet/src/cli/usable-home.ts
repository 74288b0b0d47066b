/**
 * Refuses an unwritable `$SANDLOT_HOME` before anything is opened in it, with a text about the home. Otherwise the
 * store, the keys or the audit log would fail first, with a text of their own.
 */

import { constants } from "node:fs";
import { access, mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { SandlotError } from "@sandlot/contract";

/** Creates the directory if it is missing. */
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

/** Level by level: in /proc and similar, Node's own recursive mkdir never returns. */
async function make(path: string): Promise<void> {
  const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
  if (found?.isDirectory() === true) return;
  if (found === null && dirname(path) !== path) await make(dirname(path));
  await mkdir(path, { mode: 0o700 }).catch(async (error: NodeJS.ErrnoException) => {
    // Another process was faster.
    if (error.code !== "EEXIST" || !(await stat(path)).isDirectory()) throw error;
  });
}
