/**
 * Making a directory and what is missing above it, step by step.
 *
 * Node's own way asks again for ever where the kernel says of an existing directory that nothing is there, as it does in
 * `/proc`, and calls a read-only place missing.
 */

import { mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path/posix";
import { SandlotError } from "@sandlot/contract";
import { fileError } from "./file-error.ts";

/** An existing directory is fine. The error names the part that is in the way. */
export async function makeDirectories(path: string): Promise<void> {
  const missing = [];
  for (let at = path; !(await isDirectory(at)); at = dirname(at)) missing.push(at);
  for (const directory of missing.reverse()) await makeOne(directory);
}

/** `false`: nothing is there. The root always is, so looking upwards ends. */
async function isDirectory(path: string): Promise<boolean> {
  try {
    if ((await stat(path)).isDirectory()) return true;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    // Below a file: the file is found further up.
    if (code === "ENOENT" || code === "ENOTDIR") return false;
    throw fileError(error, path);
  }
  throw new SandlotError("not_a_directory", { path });
}

async function makeOne(path: string): Promise<void> {
  try {
    await mkdir(path);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    // Somebody else was faster, or a link leads nowhere.
    if (code === "EEXIST" && (await isDirectory(path))) return;
    if (code === "EEXIST") throw new SandlotError("not_a_directory", { path }, { cause: error });
    // Its parent was there a moment ago: a place where nobody makes directories.
    if (code === "ENOENT" && (await isDirectory(dirname(path))))
      throw new SandlotError("permission_denied", { path }, { cause: error });
    throw fileError(error, path);
  }
}
