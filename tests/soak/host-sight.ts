/**
 * What there is on this host that a sandbox could leave behind: processes, mounts, control groups, and files below the
 * fleet's home. Taken before and after, the difference is what was left.
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export interface HostSight {
  readonly processes: ReadonlySet<string>;
  readonly mounts: ReadonlySet<string>;
  readonly groups: ReadonlySet<string>;
  readonly files: ReadonlySet<string>;
}

export type HostDifference = { readonly [Kind in keyof HostSight]: readonly string[] };

export function look(home: string): HostSight {
  return {
    processes: new Set(processes()),
    mounts: new Set(readFileSync("/proc/self/mountinfo", "utf8").split("\n").map(mountPoint)),
    groups: new Set(controlGroups("/sys/fs/cgroup")),
    files: new Set(readdirSync(home, { recursive: true }).map(String)),
  };
}

/** What is there now and was not before. */
export function added(before: HostSight, after: HostSight): HostDifference {
  const fresh = (kind: keyof HostSight) => [...after[kind]].filter((name) => !before[kind].has(name));
  return { processes: fresh("processes"), mounts: fresh("mounts"), groups: fresh("groups"), files: fresh("files") };
}

export function countOf(difference: HostDifference): number {
  return Object.values(difference).reduce((sum, names) => sum + names.length, 0);
}

/** Only those that sandboxes consist of: the host's own come and go. */
function* processes(): Generator<string> {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const command = readFileSync(join("/proc", pid, "cmdline"), "utf8")
        .replaceAll("\0", " ")
        .trim();
      if (/bwrap|sandboxd|sandlot-egress/.test(command) && Number(pid) !== process.pid)
        yield `${pid} ${command.slice(0, 100)}`;
    } catch {
      // It has ended meanwhile.
    }
  }
}

function mountPoint(line: string): string {
  return line.split(" ")[4] ?? "";
}

function* controlGroups(root: string): Generator<string> {
  let entries: string[];
  try {
    entries = readdirSync(root, { recursive: true }).map(String);
  } catch {
    return; // No control groups here.
  }
  for (const entry of entries) if (entry.includes("sandlot") && entry.endsWith("/tasks")) yield entry;
}
