/**
 * Numbers for projects. The kernel knows them only as numbers, one set for the whole file system, and whoever else uses it
 * may have taken some.
 *
 * A workspace's number follows from its directory's inode number, which no other directory of the file system has: two
 * fleets that choose at the same moment choose differently. What the kernel shows to be in use, or to have limits, is
 * passed over, as is what `/etc/projects` and `/etc/projid` name.
 */

import { readFileSync } from "node:fs";

/** Numbers that people give begin at 1, those of container engines a little above. */
const FIRST_ID = 2 ** 30;
const ID_COUNT = 2 ** 30;
/** A step without a factor in common with the count comes by every number. */
const STEP = 104_729;
const TRIES_MAX = 1_000;

/** `null` when all that were tried are taken, which takes somebody who takes them all. */
export function chooseProjectId(inode: bigint, taken: ReadonlySet<number>): number | null {
  const from = Number(inode % BigInt(ID_COUNT));
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const id = FIRST_ID + ((from + tries * STEP) % ID_COUNT);
    if (!taken.has(id)) return id;
  }
  return null;
}

/** Numbers that the machine's administrator has given: `1234:/path` in one file, `name:1234` in the other. */
export function givenProjectIds(files = ["/etc/projects", "/etc/projid"]): ReadonlySet<number> {
  return new Set(files.flatMap(idsIn));
}

function idsIn(path: string): readonly number[] {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    return [];
  }
  return text.split("\n").flatMap((line) => {
    const found = /^(?:(\d+):|[^#:]+:(\d+)\s*$)/.exec(line);
    return found === null ? [] : [Number(found[1] ?? found[2])];
  });
}
