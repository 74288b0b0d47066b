/**
 * Which files a sandbox with an account of its own sees as its own: its workspace, and configured mounts.
 *
 * Invariants
 * - A mounted directory keeps its owner. Files written inside belong to that owner on the host.
 * - Files that are root's and mounted read-only are not shown as the sandbox's: what is closed to others stays closed
 *   to it.
 * - Files that are root's and writable are shown as the sandbox's only where this cannot create a setuid program: the
 *   sandbox's filter refuses the mode, or a directory above the mount is closed to other accounts of the host.
 * - Where owners cannot be mapped, a mount that its sandbox could not write is read-only, and this is reported.
 */

import { realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import type { IdMapping, OwnedPath } from "../accounts/index.ts";
import type { Binding } from "./mounts.ts";

const OTHERS_MAY_WRITE = 0o002;
const OTHERS_MAY_PASS = 0o011;
const SET_ID_PROBLEM =
  "it is root's, so a sandbox could make a setuid program of root's there; move it below a directory of root's with mode 0700, or give it to another account";

/** The mounts for a sandbox of root's fleet, and a sentence for each that it cannot write as configured. */
export async function ownedMounts(
  mounts: readonly Binding[],
  mapping: Pick<IdMapping, "problem">,
  { refusesSetId }: { readonly refusesSetId: boolean },
): Promise<{ readonly mounts: readonly Binding[]; readonly problems: readonly string[] }> {
  const problems: string[] = [];
  const owned = mounts.map(async (mount) => {
    const { uid, gid, mode } = statSync(mount.from);
    if (mount.readOnly && uid === 0) return mount;
    const isDangerous = uid === 0 && !refusesSetId && !isClosedToOthers(mount.from);
    const problem = isDangerous ? SET_ID_PROBLEM : await mapping.problem(mount.from);
    if (problem === null) return { ...mount, owner: { uid, gid } };
    if (mount.readOnly || (mode & OTHERS_MAY_WRITE) !== 0) return mount;
    problems.push(`${mount.from} is read-only at ${mount.to}: ${problem}`);
    return { ...mount, readOnly: true };
  });
  return { mounts: await Promise.all(owned), problems };
}

/** Whether a directory above a path is closed to all but root. The sandbox can change the mount itself. */
function isClosedToOthers(path: string): boolean {
  for (let directory = dirname(realpathSync(path)); ; directory = dirname(directory)) {
    const { uid, mode } = statSync(directory);
    if (uid === 0 && (mode & OTHERS_MAY_PASS) === 0) return true;
    if (directory === dirname(directory)) return false;
  }
}

/** The paths to map, outer paths first. A path that is mounted twice is mapped once. */
export function ownedPaths(bindings: readonly Binding[]): readonly OwnedPath[] {
  const paths = new Map<string, OwnedPath>();
  for (const { from, owner } of bindings) if (owner !== undefined) paths.set(from, { path: from, owner });
  return [...paths.values()].sort((a, b) => a.path.length - b.path.length);
}
