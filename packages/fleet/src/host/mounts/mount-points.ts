/**
 * Checks where mounts land. A destination inside another mount is resolved in that mount's directory, and a symbolic
 * link there could redirect it, over the workspace for example.
 *
 * Invariants
 * - Before: no part of the path from the outer mount to the destination is a link, and no sandbox can put one there.
 * - After: each nested destination is mounted at its own path, once. The host may change the directory between the
 *   check and the mount; the result counts.
 */

import { lstatSync, readFileSync, readlinkSync, type Stats } from "node:fs";
import { posix } from "node:path";
import { isWithin } from "../../world/paths.ts";
import type { Account } from "../accounts/index.ts";

/** A host path, and its path inside. */
export interface Binding {
  readonly from: string;
  readonly to: string;
  readonly readOnly: boolean;
  /** Its owner on disk, where it is shown as the sandbox's. */
  readonly owner?: Account;
}

const LINKS_MAX = 40;

/** The nearest mount that contains a destination; `undefined` when there is none. */
export function outerOf(inner: Binding, bindings: readonly Binding[]): Binding | undefined {
  const around = bindings.filter(({ to }) => to !== inner.to && isWithin(inner.to, to));
  return around.sort((a, b) => b.to.length - a.to.length)[0];
}

/** The host's path of the mount point of `inner`, in the directory of `outer`. */
export function mountPointOf(inner: Binding, outer: Binding): string {
  return posix.join(outer.from, posix.relative(outer.to, inner.to));
}

/** Why `inner` cannot be mounted in `outer`; `null` when it can. */
export function mountPointProblem(inner: Binding, outer: Binding): string | null {
  const wanted = lstatSync(inner.from).isDirectory() ? "directory" : "file";
  const parts = posix.relative(outer.to, inner.to).split("/");
  let path = outer.from;
  for (const [index, part] of parts.entries()) {
    path = posix.join(path, part);
    const found = tryStat(path);
    if (found === undefined)
      return `it lies in the mount of ${outer.to}, where ${path} does not exist; create it first`;
    if (found.isSymbolicLink()) return `${path} is a symbolic link, so it would be mounted somewhere else`;
    const kind = index === parts.length - 1 ? wanted : "directory";
    if (kind === "directory" ? !found.isDirectory() : !found.isFile()) return `${path} is no ${kind}`;
  }
  return null;
}

/** The directories in which the parts of a path are resolved, including those of links in between. */
export function lookedUpIn(path: string): readonly string[] {
  const directories = new Set<string>();
  const pending = path.split("/").reverse();
  let at = "/";
  for (let links = 0; pending.length > 0; ) {
    const part = pending.pop();
    if (part === undefined || part === "" || part === ".") continue;
    directories.add(at);
    const next = posix.join(at, part);
    if (part !== ".." && tryStat(next)?.isSymbolicLink() === true) {
      if (++links > LINKS_MAX) break;
      const target = readlinkSync(next);
      pending.push(...target.split("/").reverse());
      if (target.startsWith("/")) at = "/";
    } else at = next;
  }
  return [...directories];
}

/** A nested destination that is not mounted at its path, or not alone there, in the namespace of a process. */
export function findMisplaced(bindings: readonly Binding[], pid: number): Binding | undefined {
  if (!bindings.some((binding) => outerOf(binding, bindings) !== undefined)) return undefined;
  const places = readFileSync(`/proc/${pid}/mountinfo`, "utf8").split("\n").map(placeOf);
  return bindings.find(({ to }) => places.filter((place) => place === to).length !== 1);
}

/** The kernel writes blanks and backslashes in octal. */
function placeOf(line: string): string {
  const written = line.split(" ")[4] ?? "";
  return written.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

function tryStat(path: string): Stats | undefined {
  try {
    return lstatSync(path, { throwIfNoEntry: false });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOTDIR") return undefined;
    throw error;
  }
}
