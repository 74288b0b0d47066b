/**
 * Finds this machine's control groups: version 1 has a directory tree per controller, version 2 one for all. Machines
 * in transition mount both; a controller is then in one of them only, and version 1 is checked first.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";

export type Controller = "memory" | "cpu" | "pids";
export const CONTROLLERS: readonly Controller[] = ["memory", "cpu", "pids"];
/** Version 1 counts processor time in a separate tree, which limits nothing. */
export type Tree = Controller | "cpuacct";

export interface Hierarchies {
  /** Version 1: the mount point of each tree. Two controllers may share one. */
  readonly trees: Readonly<Partial<Record<Tree, string>>>;
  /** Version 1: the mount point of the freezer's tree. It limits nothing. */
  readonly freezer: string | null;
  /** Version 2: its mount point. */
  readonly unified: string | null;
  /** This process's group in version 2, relative to the mount point. */
  readonly ownUnified: string;
}

/** `root` is the machine's file system root, for tests. */
export function findHierarchies(root = "/"): Hierarchies {
  const mounts = mountsOf(readOrEmpty(join(root, "proc/self/mountinfo")));
  const trees: Partial<Record<Tree, string>> = {};
  for (const { type, options, mountPoint } of mounts) {
    if (type !== "cgroup") continue;
    for (const tree of [...CONTROLLERS, "cpuacct"] as const)
      if (options.includes(tree)) trees[tree] ??= join(root, mountPoint);
  }
  const freezer = mounts.find(({ type, options }) => type === "cgroup" && options.includes("freezer"));
  const unified = mounts.find(({ type }) => type === "cgroup2");
  const own = /^0::(.*)$/m.exec(readOrEmpty(join(root, "proc/self/cgroup")))?.[1] ?? "/";
  return {
    trees,
    freezer: freezer === undefined ? null : join(root, freezer.mountPoint),
    unified: unified === undefined ? null : join(root, unified.mountPoint),
    ownUnified: relativeTo(unified?.mountRoot ?? "/", own),
  };
}

export interface Mount {
  readonly mountRoot: string;
  readonly mountPoint: string;
  readonly type: string;
  readonly options: readonly string[];
}

/** Lines of mountinfo: fields, optional ones, a hyphen, then type, source and the file system's own options. */
function mountsOf(text: string): readonly Mount[] {
  return text.split("\n").flatMap((line) => {
    const [before = "", after = ""] = line.split(" - ");
    const [, , , mountRoot = "", mountPoint = ""] = before.split(" ");
    const [type = "", , options = ""] = after.split(" ");
    return type === "" ? [] : [{ mountRoot, mountPoint: plainPath(mountPoint), type, options: options.split(",") }];
  });
}

/** Decodes octal escapes of spaces and the like. */
export function plainPath(path: string): string {
  return path.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}

/** In a container without a namespace for groups, the mount shows a part of the tree, and paths begin above it. */
function relativeTo(mountRoot: string, path: string): string {
  if (mountRoot === "/" || !path.startsWith(mountRoot)) return path;
  return path.slice(mountRoot.length) || "/";
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
