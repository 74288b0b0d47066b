/**
 * Creates a directory and its missing parents, step by step.
 *
 * Node's own way loops for ever where the kernel says of an existing directory that it is missing, as in `/proc`, and
 * calls a read-only place missing.
 */

import { mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path/posix";
import { SandlotError } from "@sandlot/contract";
import { fileError } from "./file-error.ts";

/** An existing directory is fine. The error names the obstacle in the path. */
export async function makeDirectories(path: string): Promise<void> {
  const missing = [];
  for (let at = path; !(await isDirectory(at)); at = dirname(at)) missing.push(at);
  for (const directory of missing.reverse()) await makeOne(directory);
}

/** `false`: missing. The root always exists, so looking upwards ends. */
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
    // Another process was faster, or a link is dangling.
    if (code === "EEXIST" && (await isDirectory(path))) return;
    if (code === "EEXIST") throw new SandlotError("not_a_directory", { path }, { cause: error });
    // Its parent existed a moment ago: a file system that does not allow directories.
    if (code === "ENOENT" && (await isDirectory(dirname(path))))
      throw new SandlotError("permission_denied", { path }, { cause: error });
    throw fileError(error, path);
  }
}
