/** Processes of this machine, from /proc. */

import { readdirSync, readFileSync } from "node:fs";

/** A process and its descendants. */
export function processTree(root: number): readonly number[] {
  const parents = parentsOfAll();
  const found = new Set([root]);
  for (let before = 0; before !== found.size; ) {
    before = found.size;
    for (const [pid, parent] of parents) if (found.has(parent)) found.add(pid);
  }
  return [...found];
}

function parentsOfAll(): ReadonlyMap<number, number> {
  const parents = new Map<number, number>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "utf8");
      const [, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      parents.set(Number(name), Number(parent));
    } catch {
      // It has ended.
    }
  }
  return parents;
}
