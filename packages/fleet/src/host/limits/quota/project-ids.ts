/**
 * Numbers for projects. The kernel has one set of numbers for the whole file system, and other programs may have taken
 * some.
 *
 * A workspace's number follows from its directory's inode number, which is unique in the file system: two fleets that
 * choose at the same moment choose differently. Numbers that the kernel shows in use or limited are skipped, and so are
 * those in `/etc/projects` and `/etc/projid`.
 */

import { readFileSync } from "node:fs";

/** People's numbers begin at 1, those of container engines a little above. */
const FIRST_ID = 2 ** 30;
const ID_COUNT = 2 ** 30;
/** Coprime to the count, so the steps visit every number. */
const STEP = 104_729;
const TRIES_MAX = 1_000;

/** `null` when all attempts are taken, which happens only if a program takes them all. */
export function chooseProjectId(inode: bigint, taken: ReadonlySet<number>): number | null {
  const from = Number(inode % BigInt(ID_COUNT));
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const id = FIRST_ID + ((from + tries * STEP) % ID_COUNT);
    if (!taken.has(id)) return id;
  }
  return null;
}

/** Numbers that the machine's administrator assigned: `1234:/path` in one file, `name:1234` in the other. */
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
