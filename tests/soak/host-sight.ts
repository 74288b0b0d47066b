/**
 * What there is on this host that a sandbox could leave behind: processes, mounts, control groups, and files below the
 * fleet's home. Taken before and after, the difference is what was left. Other fleets may work on the same host meanwhile:
 * what is certain to be theirs is left out.
 */

import { readdirSync, readFileSync } from "node:fs";

export interface HostSight {
  readonly processes: ReadonlySet<string>;
  readonly mounts: ReadonlySet<string>;
  readonly groups: ReadonlySet<string>;
  readonly files: ReadonlySet<string>;
}

export type HostDifference = { readonly [Kind in keyof HostSight]: readonly string[] };

export type Engine = "local" | "docker";

export function look(home: string, engine: Engine): HostSight {
  const fleets = readdirSync(home);
  const mounts = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  return {
    processes: new Set(processes(fleets, engine)),
    // Docker mounts where it likes; a local sandbox has nothing but what lies below its fleet's home.
    mounts: new Set(mounts.filter((line) => engine === "docker" || line.includes(home)).map(mountPoint)),
    groups: new Set(controlGroups("/sys/fs/cgroup", fleets)),
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

const PARTS = /\bbwrap\b|sandboxd|sandlot-(egress|start|stage)/;
/** What stands between a container and the host. */
const CONTAINERS = /containerd-shim|conmon/;

/** Only those that sandboxes consist of: the host's own come and go. */
function* processes(fleets: readonly string[], engine: Engine): Generator<string> {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    const command = commandOf(pid);
    if (PARTS.test(command) && Number(pid) !== process.pid && !isOthers(pid, fleets, engine))
      yield `${pid} ${command.slice(0, 100)}`;
  }
}

/** In another fleet's control group, in a container of an engine that we do not use, or below a process that is not ours. */
function isOthers(pid: string, fleets: readonly string[], engine: Engine): boolean {
  const groups = read(`/proc/${pid}/cgroup`);
  if (/\/sandlot\//.test(groups)) return !fleets.some((fleet) => groups.includes(`/${fleet}/`));
  for (let at = parentOf(pid); at !== "0" && at !== "1"; at = parentOf(at)) {
    if (Number(at) === process.pid) return false;
    const command = commandOf(at);
    if (engine === "docker" && CONTAINERS.test(command)) return false;
    if (!PARTS.test(command)) return true;
  }
  return false;
}

function commandOf(pid: string): string {
  return read(`/proc/${pid}/cmdline`).replaceAll("\0", " ").trim();
}

function parentOf(pid: string): string {
  return /^PPid:\s+(\d+)/m.exec(read(`/proc/${pid}/status`))?.[1] ?? "0";
}

/** Empty when it has ended meanwhile. */
function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

function mountPoint(line: string): string {
  return line.split(" ")[4] ?? "";
}

function* controlGroups(root: string, fleets: readonly string[]): Generator<string> {
  let entries: string[];
  try {
    entries = readdirSync(root, { recursive: true }).map(String);
  } catch {
    return; // No control groups here.
  }
  for (const entry of entries)
    if (entry.endsWith("/tasks") && fleets.some((fleet) => entry.includes(`/sandlot/${fleet}/`))) yield entry;
}
