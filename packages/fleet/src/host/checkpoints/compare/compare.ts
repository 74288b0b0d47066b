/** What differs between two stored trees. Equal directories are one object, and are not read. */

import { type Entry, KIND, treeEntries } from "../store/tree-format.ts";
import { join } from "../take/path-list.ts";

export type ReadObject = (hash: Buffer) => Buffer;

export interface Pair {
  readonly name: string;
  readonly before: Entry | null;
  readonly after: Entry | null;
}

/** All names of two directories, in their order. */
export function* pairs(read: ReadObject, before: Buffer | null, after: Buffer | null): Generator<Pair> {
  const [a, b] = [entriesIn(read, before), entriesIn(read, after)];
  let [left, right] = [a.next(), b.next()];
  while (left.done !== true || right.done !== true) {
    const [x, y] = [left.done === true ? null : left.value, right.done === true ? null : right.value];
    const order = x === null ? 1 : y === null ? -1 : x.name < y.name ? -1 : x.name > y.name ? 1 : 0;
    yield { name: (order <= 0 ? x : y)?.name ?? "", before: order <= 0 ? x : null, after: order >= 0 ? y : null };
    if (order <= 0) left = a.next();
    if (order >= 0) right = b.next();
  }
}

function* entriesIn(read: ReadObject, hash: Buffer | null): Generator<Entry> {
  if (hash !== null) yield* treeEntries(read, hash);
}

export interface Difference {
  readonly path: string;
  readonly before: Entry | null;
  readonly after: Entry | null;
}

/** Everything whose kind, content or mode differs, also below directories that only one side has. */
export function* differences(
  read: ReadObject,
  before: Buffer | null,
  after: Buffer | null,
  filter: PathFilter = ALL,
  path = "",
): Generator<Difference> {
  if (before !== null && after !== null && before.equals(after)) return;
  for (const pair of pairs(read, before, after)) {
    const below = join(path, pair.name);
    const matches = filter.matches(below);
    if (matches === "no") continue;
    if (matches === "yes" && !isEqual(pair.before, pair.after)) yield { path: below, ...pair };
    const [a, b] = [directoryOf(pair.before), directoryOf(pair.after)];
    if (a !== null || b !== null) yield* differences(read, a, b, filter, below);
  }
}

export function directoryOf(entry: Entry | null): Buffer | null {
  return entry?.kind === KIND.directory ? entry.hash : null;
}

/** But for times, and for what is in a directory. */
export function isEqual(a: Entry | null, b: Entry | null): boolean {
  return a !== null && b !== null && hasSameContent(a, b) && a.mode === b.mode;
}

export function hasSameContent(a: Entry, b: Entry): boolean {
  if (a.kind === KIND.file && b.kind === KIND.file) return a.size === b.size && a.content.equals(b.content);
  if (a.kind === KIND.link && b.kind === KIND.link) return a.target === b.target;
  return a.kind === b.kind;
}

/** Which paths are meant: these and all below them. `on-the-way`: a directory above one of them. */
export class PathFilter {
  readonly #paths: readonly string[] | null;
  readonly #except: readonly string[];

  /** Latin-1; `null` means all. `except`: nothing at or below these. */
  constructor(paths: readonly string[] | null, except: readonly string[] = []) {
    this.#paths = paths;
    this.#except = except;
  }

  get isAll(): boolean {
    return this.#paths === null;
  }

  matches(path: string): "yes" | "on-the-way" | "no" {
    for (const apart of this.#except) if (path === apart || path.startsWith(`${apart}/`)) return "no";
    if (this.#paths === null) return "yes";
    let isAbove = false;
    for (const wanted of this.#paths) {
      if (path === wanted || path.startsWith(`${wanted}/`)) return "yes";
      isAbove ||= wanted.startsWith(`${path}/`);
    }
    return isAbove ? "on-the-way" : "no";
  }
}

export const ALL = new PathFilter(null);
