/** Hard links of a restored tree: which names must be one file, and which must not. */

import type { PathFilter } from "../compare/compare.ts";
import { at, calls, closing } from "../store/calls.ts";
import { type DirectoryEntry, KIND, treeEntries } from "../store/tree-format.ts";
import { linkGroups } from "../take/hard-links.ts";
import type { Applier } from "./applier.ts";
import { type Builder, OPEN_INSIDE } from "./builder.ts";
import { Protected } from "./protected.ts";

type Groups = readonly (readonly string[])[];
type Read = (hash: Buffer) => Buffer;

export function groupsIn(read: Read, table: Buffer | null): Groups {
  return table === null ? [] : linkGroups(read(table));
}

/** Files that share an inode now, and must not: all but the first of each kind get an inode of their own. */
export function apart(present: Groups, target: Groups, filter: PathFilter): Protected {
  const groupOf = new Map<string, number>();
  for (const [number, paths] of target.entries()) for (const path of paths) groupOf.set(path, number);
  const paths: string[] = [];
  for (const group of present) {
    const [first = ""] = group;
    const wanted = groupOf.get(first);
    for (const path of group.slice(1)) {
      const isTogether = wanted !== undefined && groupOf.get(path) === wanted;
      if (!isTogether && filter.matches(path) === "yes") paths.push(path);
    }
    // The others stay linked to the first one, which changes alone where only it is restored.
    if (!filter.isAll && filter.matches(first) === "yes" && group.some((path) => filter.matches(path) !== "yes"))
      paths.push(first);
  }
  return new Protected(paths);
}

/** Joins the names of the target's groups. Returns the directories whose names it has changed. */
export async function join(
  root: number,
  groups: Groups,
  { applier, drafts, filter, guarded }: JoinOptions,
): Promise<ReadonlySet<string>> {
  const touched = new Set<string>();
  for (const group of groups) {
    const members = group.filter((path) => filter.matches(path) === "yes" && !guarded.has(path));
    const [first, ...others] = members;
    if (first === undefined || others.length === 0) continue;
    const master = openParent(root, first);
    if (master === null) continue;
    try {
      const { ino } = calls.lstat(at(master.descriptor, master.name)) ?? {};
      for (const path of others) {
        const other = openParent(root, path);
        if (other === null || ino === undefined) continue;
        if (calls.lstat(at(other.descriptor, other.name))?.ino !== ino) {
          const draft = applier.draftName();
          calls.link(at(master.descriptor, master.name), at(drafts, draft));
          applier.place({ ...other, path: "", isOpened: false }, draft, other.name, false);
          touched.add(path.slice(0, Math.max(0, path.lastIndexOf("/"))));
          await applier.flush();
        }
        calls.close(other.descriptor);
      }
    } finally {
      calls.close(master.descriptor);
    }
  }
  return touched;
}

interface JoinOptions {
  readonly applier: Applier;
  readonly drafts: number;
  readonly filter: PathFilter;
  readonly guarded: Protected;
}

/** The directories on the way to a path, each opened below its parent. `null` where there is none. */
function openParent(root: number, path: string): { readonly descriptor: number; readonly name: string } | null {
  const names = path.split("/");
  const last = names.pop() ?? "";
  let descriptor = calls.open(`/proc/self/fd/${root}/.`, OPEN_INSIDE);
  for (const name of names) {
    try {
      const next = calls.open(at(descriptor, name), OPEN_INSIDE);
      calls.close(descriptor);
      descriptor = next;
    } catch {
      calls.close(descriptor);
      return null;
    }
  }
  return { descriptor, name: last };
}

/** Joining names has changed the times of their directories. */
export function settleTouched(
  root: number,
  touched: ReadonlySet<string>,
  { read, tree, builder }: { readonly read: Read; readonly tree: Buffer; readonly builder: Builder },
): void {
  for (const path of touched) {
    const entry = directoryAt(read, tree, path);
    const found = entry === null ? null : openParent(root, path);
    if (found === null || entry === null) continue;
    try {
      closing(calls.open(at(found.descriptor, found.name), OPEN_INSIDE), (one) => builder.settle(one, entry));
    } finally {
      calls.close(found.descriptor);
    }
  }
}

/** The entry of a directory in a stored tree. */
function directoryAt(read: Read, tree: Buffer, path: string): DirectoryEntry | null {
  let found: DirectoryEntry | null = null;
  let hash = tree;
  for (const name of path.split("/")) {
    found = null;
    for (const entry of treeEntries(read, hash))
      if (entry.name === name && entry.kind === KIND.directory) found = entry;
    if (found === null) return null;
    hash = found.hash;
  }
  return found;
}

export function hasSameLinks(present: Groups, target: Groups, filter: PathFilter): boolean {
  const relevant = (groups: Groups) =>
    groups.map((group) => group.filter((path) => filter.matches(path) === "yes")).filter(({ length }) => length > 1);
  return JSON.stringify(relevant(present)) === JSON.stringify(relevant(target));
}
