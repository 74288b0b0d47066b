/**
 * Names of temporary files beside their target. Listing, searching and watching hide them while they are written. What
 * a killed daemon left is an ordinary file, which is shown and can be removed.
 */

import { DRAFT_PREFIX } from "@sandlot/contract";
import { randomDigits } from "../random.ts";
import { join } from "./paths.ts";

const underWay = new Set<string>();

/** Runs work with an unused path in `directory`. The work removes what it puts there. */
export async function withTemporary<T>(directory: string, work: (path: string) => Promise<T>): Promise<T> {
  const name = `.sandboxd-${randomDigits(16)}.tmp`;
  underWay.add(name);
  try {
    return await work(join(directory, name));
  } finally {
    underWay.delete(name);
  }
}

/** Whether a name, or a path's last part, is a temporary file of this daemon or its fleet. */
export function isTemporary(path: string): boolean {
  const name = path.slice(path.lastIndexOf("/") + 1);
  return name.startsWith(DRAFT_PREFIX) || underWay.has(name);
}
