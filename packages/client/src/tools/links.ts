/** Symbolic links, which a sandbox's `stat` shows as themselves and some frameworks want followed. */

import { type Sandbox, SandlotError, SYSTEM_PATH } from "@sandlot/contract";

/** The target of a path. A dangling link is `file_not_found`. */
export async function behindLinks(sandbox: Sandbox, path: string): Promise<string> {
  if ((await sandbox.files.stat(path)).kind !== "symlink") return path;
  return canonicalPath(sandbox, path);
}

/** A path without links anywhere in it. */
export async function canonicalPath(sandbox: Sandbox, path: string): Promise<string> {
  const { stdout, exitCode } = await sandbox.exec(["readlink", "-f", path], { env: { PATH: SYSTEM_PATH } });
  if (exitCode !== 0) throw new SandlotError("file_not_found", { path });
  const found = stdout.replace(/\n$/, "");
  // `readlink -f` also succeeds for a missing last part.
  await sandbox.files.stat(found);
  return found;
}
