/**
 * Whether configured mounts show what was checked. Between the check and the engine's mount somebody on the host may have put something
 * else under a path; what came of it is what counts, so it is looked at once the container runs and before anybody uses it.
 *
 * Invariants
 * - What is at a mount's place in the container is the very directory or file that was checked.
 * - Where places lie in one another, each is mounted at its own path, once.
 */

import { readFileSync, statSync } from "node:fs";
import { plainPath } from "../../../host/limits/hierarchy.ts";
import { findMisplaced } from "../../../host/mounts/mount-points.ts";
import type { Binding } from "../../../host/mounts/mounts.ts";

/** A mount, and what its host path was when it was checked. */
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
 * A mount that is not what, or not where, it was meant to be, in the namespace of a process. `around` are the container's other
 * mounts. One whose place the image leads elsewhere by a link of its own is the image's affair.
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
