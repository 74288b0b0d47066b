/**
 * Everything on this host that belongs to the fleets below a home: processes, mounts, control groups, files. The
 * difference between before and after is what was left.
 *
 * Invariants
 * - A process is ours by its own facts, never by its name: it is in a control group of our fleets, it descends from
 *   this process, or its arguments, environment, mounts or descriptors name our home or one of our fleets. Both are
 *   random, so no other process has them; and every process in a sandbox sees the workspace in its mounts, so all of
 *   ours are found.
 * - Docker's mounts and shims name no owner: there, everything new on the host counts.
 */

import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";

export interface HostSight {
  readonly processes: ReadonlySet<string>;
  readonly mounts: ReadonlySet<string>;
  readonly groups: ReadonlySet<string>;
  readonly files: ReadonlySet<string>;
}

export type HostDifference = { readonly [Kind in keyof HostSight]: readonly string[] };

export type Engine = "local" | "docker";

export function look(home: string, engine: Engine): HostSight {
  const fleets = readdirSync(home).filter((name) => existsSync(join(home, name, "homes")));
  const mounts = read("/proc/self/mountinfo").split("\n");
  return {
    processes: new Set(processes([home, ...fleets], engine)),
    mounts: new Set(mounts.filter((line) => engine === "docker" || line.includes(home)).map(mountPoint)),
    groups: new Set(controlGroups("/sys/fs/cgroup", fleets)),
    files: new Set(filesIn(home)),
  };
}

/** The directory of a claimed account is not listed separately while it has a claim. */
function filesIn(home: string): readonly string[] {
  const files = readdirSync(home, { recursive: true }).map(String);
  const claimed = new Set(files.map((file) => CLAIM.exec(file)?.[1]));
  return files.filter((file) => !claimed.has(file));
}

/** What is new. */
export function added(before: HostSight, after: HostSight): HostDifference {
  const fresh = (kind: keyof HostSight) => [...after[kind]].filter((name) => !before[kind].has(name));
  return { processes: fresh("processes"), mounts: fresh("mounts"), groups: fresh("groups"), files: fresh("files") };
}

export function countOf(difference: HostDifference): number {
  return Object.values(difference).reduce((sum, names) => sum + names.length, 0);
}

/** The claim of an account: `ids/<uid>/<object>`. */
const CLAIM = /^(ids\/\d+)\/./;
/**
 * The store, a home's number, a fleet's own folders, and what its sandboxes share. All other new files are left over.
 */
const KEPT =
  /^fleet\.db|^ids\/number$|^[\w-]+(\/(homes(\/\.trash)?|markers|mapped|objects|containers|quarantine|s|slots|(etc|locks|frames).*))?$/;
/** What stays of a purged thread for a week, so that a process that missed its end writes nothing. */
const FENCE = /^[\w-]+\/homes\/[0-9a-f]+(\/fence\.\d+\.none(\.[\w-]+)?)?$/;

/**
 * The store of a user's checkpoints, which outlives sandboxes. Records of a thread go with its purge: `checkpoints` of
 * the backend suite and `purge` of the checkpoints' own tests look at that.
 */
const CHECKPOINTS = /^[\w-]+\/checkpoints(\/.*)?$/;

/** Of a purged thread's timeline only the mark stays, for a day. */
const TIMELINE_PURGED = /^[\w-]+\/timelines(\/[0-9a-f]+(\/purged\.\d+\.\d+)?)?$/;

/** Whether a file below a home stays without sandboxes. */
export function isKept(file: string): boolean {
  return KEPT.test(file) || FENCE.test(file) || CHECKPOINTS.test(file) || TIMELINE_PURGED.test(file);
}

/** The processes between a container and the host. */
const CONTAINERS = /containerd-shim|conmon/;

function* processes(names: readonly string[], engine: Engine): Generator<string> {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    if (Number(pid) === process.pid) continue;
    const command = commandOf(pid);
    const isShim = engine === "docker" && CONTAINERS.test(command);
    if (isShim || isOurs(pid, names)) yield `${pid} ${command.slice(0, 100)}`;
  }
}

function isOurs(pid: string, names: readonly string[]): boolean {
  const files = ["cgroup", "cmdline", "environ", "mountinfo"].map((file) => `/proc/${pid}/${file}`);
  const says = (text: string) => names.some((name) => text.includes(name));
  return files.some((path) => says(read(path))) || descriptors(pid).some(says) || comesFromUs(pid);
}

export function comesFromUs(pid: string): boolean {
  for (let at = parentOf(pid); at !== "0" && at !== "1"; at = parentOf(at)) if (Number(at) === process.pid) return true;
  return false;
}

/** Empty when it has ended meanwhile. */
function descriptors(pid: string): readonly string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
  } catch {
    return [];
  }
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
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

function mountPoint(line: string): string {
  return line.split(" ")[4] ?? "";
}

/** Of both versions: every group has this file. */
function* controlGroups(root: string, fleets: readonly string[]): Generator<string> {
  let entries: string[];
  try {
    entries = readdirSync(root, { recursive: true }).map(String);
  } catch {
    return; // No control groups here.
  }
  for (const entry of entries)
    if (entry.endsWith("/cgroup.procs") && fleets.some((fleet) => entry.includes(`/sandlot/${fleet}/`))) yield entry;
}
