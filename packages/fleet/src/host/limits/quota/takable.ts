/**
 * Checks a workspace's tree before it is assigned to a project. Only files and directories can be opened for it: an
 * existing symbolic link would stay without a project, and could then not be moved within the tree.
 */

import { lstat, opendir } from "node:fs/promises";
import { join } from "node:path";

export interface Tree {
  readonly root: string;
  /** With the root, parents first. */
  readonly directories: readonly string[];
  readonly hasFiles: boolean;
}

/** Throws when it contains anything else. No link is followed. */
export async function lookThrough(root: string): Promise<Tree> {
  const directories = [root];
  let hasFiles = false;
  for (const directory of directories) {
    for await (const { name } of await opendir(directory)) {
      const path = join(directory, name);
      const found = await lstat(path);
      if (found.isDirectory()) directories.push(path);
      else if (found.isFile()) hasFiles = true;
      else throw new Error(`${path} cannot belong to a project: it is no file, and was there before`);
    }
  }
  return { root, directories, hasFiles };
}
