/**
 * Everything below a directory, in the order of full paths, without holding all of it.
 *
 * The order of paths is not that of a plain descent: `a-b` comes between `a` and `a/b`. So the content of a directory
 * is sorted among its neighbours under the directory's name with a slash.
 *
 * Symbolic links are reported and never followed: a walk ends, and stays below its root. An unreadable directory is
 * skipped and counted, so that a response can say so.
 */

import { readdirSync } from "node:fs";
import { monotonicMs, nextTurn } from "../clock.ts";
import { isTemporary } from "./temporary.ts";

export interface Entry {
  /** Relative to the start of the walk. */
  readonly relative: string;
  readonly name: string;
  readonly kind: "file" | "directory" | "symlink" | "other";
}

export interface Walk {
  readonly root: string;
  readonly depth: number;
  /** Skipped with their content, relative to the root. */
  readonly unlisted: readonly string[];
  /** Whether to enter this directory. */
  readonly enter?: (relative: string) => boolean;
}

/** How long a walk blocks other requests. Reading directories asynchronously takes ten times as long. */
const SLICE_MS = 10;

/**
 * Calls `visit` for each entry until it returns `false`. Returns how many directories were unreadable. The root itself
 * must be readable: that is the caller's error.
 */
export async function walk(options: Walk, visit: (entry: Entry) => boolean): Promise<{ unreadable: number }> {
  const pacer = new Pacer();
  let unreadable = 0;
  const levels: Level[] = [{ prefix: "", items: ordered(readNames(options.root), options.depth > 1), at: 0 }];
  for (let level = levels.at(-1); level !== undefined; level = levels.at(-1)) {
    const item = level.items[level.at++];
    if (item === undefined) {
      levels.pop();
      continue;
    }
    const relative = level.prefix + item.name;
    if (options.unlisted.includes(relative)) continue;
    if (pacer.isDue()) await pacer.pause();
    if (!item.isContent) {
      if (!visit({ relative, name: item.name, kind: item.kind })) break;
    } else if (options.enter === undefined || options.enter(relative)) {
      const names = tryReadNames(`${options.root}/${relative}`);
      if (names === null) unreadable++;
      else levels.push({ prefix: `${relative}/`, items: ordered(names, options.depth > levels.length + 1), at: 0 });
    }
  }
  return { unreadable };
}

interface Level {
  readonly prefix: string;
  readonly items: readonly Item[];
  at: number;
}

type Names = ReturnType<typeof readNames>;

function readNames(path: string) {
  return readdirSync(path, { withFileTypes: true });
}

/** `null`: it exists and is unreadable. */
function tryReadNames(path: string): Names | null {
  try {
    return readNames(path);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    // Gone or replaced since its name was read: then it counts as missing.
    return code === "ENOENT" || code === "ENOTDIR" ? [] : null;
  }
}

interface Item {
  readonly sortKey: string;
  readonly name: string;
  readonly kind: Entry["kind"];
  /** Stands for the content, not for the directory itself. */
  readonly isContent: boolean;
}

function ordered(names: Names, withContent: boolean): Item[] {
  const items: Item[] = [];
  for (const entry of names) {
    const { name } = entry;
    if (isTemporary(name)) continue;
    const kind = kindOf(entry);
    items.push({ sortKey: name, name, kind, isContent: false });
    if (kind === "directory" && withContent) items.push({ sortKey: `${name}/`, name, kind, isContent: true });
  }
  return items.sort((a, b) => (a.sortKey < b.sortKey ? -1 : 1));
}

function kindOf(entry: Names[number]): Entry["kind"] {
  if (entry.isFile()) return "file";
  if (entry.isDirectory()) return "directory";
  return entry.isSymbolicLink() ? "symlink" : "other";
}

/** Yields the event loop from time to time. */
export class Pacer {
  #since = monotonicMs();

  isDue(): boolean {
    return monotonicMs() - this.#since > SLICE_MS;
  }

  async pause(): Promise<void> {
    await nextTurn();
    this.#since = monotonicMs();
  }
}
