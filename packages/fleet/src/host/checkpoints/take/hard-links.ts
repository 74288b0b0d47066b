/**
 * The files of a tree that have several names in it. The table lists the names of each, sorted:
 *
 *   JSON: [[path, path, …], …], Latin-1 paths
 *
 * A file with other names outside of the tree, or in a part that is left out, is a file like any other.
 */

import type { BigIntStats } from "node:fs";
import type { ReadFile } from "./file-reader.ts";

/** Names of linked files that are remembered. Those beyond are kept as files of their own. */
const NAMES_MAX = 200_000;

interface Linked {
  readonly read: ReadFile;
  readonly paths: string[];
}

export class HardLinks {
  readonly #files = new Map<bigint, Linked>();
  #names = 0;

  /** What another name of the same file has held in this walk. */
  known(stat: BigIntStats): ReadFile | null {
    const { read } = this.#files.get(stat.ino) ?? {};
    if (read === undefined) return null;
    const before = read.stat;
    return before.ctimeNs === stat.ctimeNs && before.mtimeNs === stat.mtimeNs && before.size === stat.size
      ? read
      : null;
  }

  add(stat: BigIntStats, path: string, read: ReadFile): void {
    if (this.#names >= NAMES_MAX) return;
    this.#names++;
    const linked = this.#files.get(stat.ino);
    if (linked === undefined) this.#files.set(stat.ino, { read, paths: [path] });
    else linked.paths.push(path);
  }

  table(): Buffer | null {
    const groups: string[][] = [];
    for (const { paths } of this.#files.values()) if (paths.length > 1) groups.push([...paths].sort(byBytes));
    if (groups.length === 0) return null;
    groups.sort((a, b) => byBytes(a[0] ?? "", b[0] ?? ""));
    return Buffer.from(JSON.stringify(groups));
  }
}

function byBytes(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Our own bytes: they were hashed when they were written. */
export function linkGroups(table: Buffer): readonly (readonly string[])[] {
  return JSON.parse(table.toString()) as string[][];
}
