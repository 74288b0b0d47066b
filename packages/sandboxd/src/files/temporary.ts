/**
 * Names for what is being written beside its target. While it is, nobody is shown it: neither listing, searching nor
 * watching. What a killed daemon left behind is an ordinary file, which is shown and can be removed.
 */

import { DRAFT_PREFIX } from "@sandlot/contract";
import { randomDigits } from "../random.ts";
import { join } from "./paths.ts";

const underWay = new Set<string>();

/** Runs work with a path in `directory` that nobody else uses. Whoever puts something there takes it away again. */
export async function withTemporary<T>(directory: string, work: (path: string) => Promise<T>): Promise<T> {
  const name = `.sandboxd-${randomDigits(16)}.tmp`;
  underWay.add(name);
  try {
    return await work(join(directory, name));
  } finally {
    underWay.delete(name);
  }
}

/** Whether a name, or a path's last one, stands for something that is still being written, by this daemon or by its fleet. */
export function isTemporary(path: string): boolean {
  const name = path.slice(path.lastIndexOf("/") + 1);
  return name.startsWith(DRAFT_PREFIX) || underWay.has(name);
}
