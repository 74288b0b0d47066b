/**
 * The tree of an environment while it is built, and what is left of it afterwards.
 *
 * Programs of packages have written it, so every name and depth is possible: names are bytes, no link is followed, and
 * a tree that cannot be read to its end is no environment.
 */

import { chmod, lstat, readdir, rm } from "node:fs/promises";
import { join } from "node:path";

export interface TreeSize {
  readonly sizeBytes: number;
  readonly files: number;
}

export interface TreeLimits {
  readonly maxBytes: number;
  readonly maxFiles: number;
}

/** Of a tree that changes meanwhile. Stops at the first entry beyond the limits; one that goes away counts nothing. */
export async function measureTree(tree: string, { maxBytes, maxFiles }: TreeLimits): Promise<TreeSize> {
  let [sizeBytes, files] = [0, 0];
  const walk = async (directory: Buffer): Promise<void> => {
    const names = await readdir(directory, { encoding: "buffer" }).catch(() => []);
    for (const name of names) {
      const path = below(directory, name);
      const stat = await lstat(path).catch(() => null);
      if (stat === null) continue;
      files += 1;
      sizeBytes += stat.blocks * 512;
      if (sizeBytes > maxBytes || files > maxFiles) return;
      if (stat.isDirectory()) await walk(path);
    }
  };
  await walk(Buffer.from(tree));
  return { sizeBytes, files };
}

/**
 * Leaves directories, files and links, readable by all, without setuid and devices. No process may be left that writes
 * here. Stops beyond the limits, and rejects where an entry cannot be read.
 */
export async function settleTree(tree: string, { maxBytes, maxFiles }: TreeLimits): Promise<TreeSize> {
  let [sizeBytes, files] = [0, -1];
  const walk = async (path: Buffer): Promise<void> => {
    const stat = await lstat(path);
    files += 1;
    sizeBytes += stat.blocks * 512;
    if (sizeBytes > maxBytes || files > maxFiles || stat.isSymbolicLink()) return;
    if (stat.isDirectory()) {
      await chmod(path, 0o755);
      for (const name of await readdir(path, { encoding: "buffer" })) await walk(below(path, name));
    } else if (stat.isFile()) await chmod(path, (stat.mode & 0o111) === 0 ? 0o644 : 0o755);
    else await rm(path);
  };
  await walk(Buffer.from(tree));
  return { sizeBytes, files };
}

/** Where the packages of each version of Python are, below the tree. */
export async function pythonPathsOf(tree: string): Promise<readonly string[]> {
  const versions = await readdir(join(tree, "lib")).catch(() => []);
  return versions.filter((name) => /^python3\.\d+$/.test(name)).map((name) => `lib/${name}/site-packages`);
}

function below(directory: Buffer, name: Buffer): Buffer {
  return Buffer.concat([directory, Buffer.from("/"), name]);
}
