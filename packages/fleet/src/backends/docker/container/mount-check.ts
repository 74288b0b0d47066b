/**
 * Checks that configured mounts show the files that were checked. A process on the host may replace a path between the
 * check and the engine's mount. So the mounts are checked again once the container runs, before any caller uses it.
 *
 * Invariants
 * - Each mount in the container shows the same directory or file that was checked.
 * - Nested mounts are each mounted at their own path, once.
 */

import { readFileSync, statSync } from "node:fs";
import { plainPath } from "../../../host/limits/hierarchy.ts";
import { findMisplaced } from "../../../host/mounts/mount-points.ts";
import type { Binding } from "../../../host/mounts/mounts.ts";

/** A mount, and the identity of its host path when it was checked. */
export interface SeenMount extends Binding {
  readonly device: bigint;
  readonly inode: bigint;
}

export function seenMounts(mounts: readonly Binding[]): readonly SeenMount[] {
  return mounts.map((mount) => {
    const { dev: device, ino: inode } = statSync(mount.from, { bigint: true });
    return { ...mount, device, inode };
  });
}

/**
 * A mount that shows another file, or another place, than intended, in the namespace of a process. `around` are the
 * container's other mounts. A place that the image redirects by its own link is allowed.
 */
export function findMisplacedIn(
  seen: readonly SeenMount[],
  around: readonly Binding[],
  pid: number,
): Binding | undefined {
  if (seen.length === 0) return undefined;
  const places = new Set(readFileSync(`/proc/${pid}/mountinfo`, "utf8").split("\n").map(placeOf));
  return findMisplaced([...around, ...seen], pid) ?? seen.find((mount) => places.has(mount.to) && !isIt(mount, pid));
}

function isIt({ to, device, inode }: SeenMount, pid: number): boolean {
  const found = statSync(`/proc/${pid}/root${to}`, { bigint: true, throwIfNoEntry: false });
  return found?.dev === device && found.ino === inode;
}

function placeOf(line: string): string {
  return plainPath(line.split(" ")[4] ?? "");
}
