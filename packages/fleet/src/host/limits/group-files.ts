/**
 * The files of control groups: reading and writing them, and where each version of control groups has them.
 *
 * Each file is one system call of a few microseconds, so they are read and written synchronously.
 *
 * - Version 1 has a tree per controller. A sandbox's group is the same path in each of them. A process enters by `tasks`,
 *   which moves one thread. To move a whole process (`cgroup.procs`) the kernel blocks every fork and exit of the machine,
 *   and takes 3 ms in each tree; a thread that moves itself needs none of it.
 * - Version 2 has one tree. A controller is available in a group when every group above delegates it, and a group that
 *   delegates controllers has no processes of its own.
 */

import { closeSync, mkdirSync, openSync, readFileSync, readSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Controller, Tree } from "./hierarchy.ts";

/** The differences between the versions of control groups. Group paths are relative to the mount points. */
export interface Dialect {
  readonly version: 1 | 2;
  /** The directories of a group. A process enters all of them. */
  directoriesOf(group: string): readonly string[];
  /** The file in each of them by which a single-threaded process enters the group, by writing `0`. */
  readonly entry: "tasks" | "cgroup.procs";
  /** Prepares the parent directories for groups. */
  prepare(parent: string): void;
  setLimits(
    group: string,
    requested: { memoryBytes?: number; cpuCount?: number; cpuWeight?: number; pidsMax?: number | "max" },
  ): void;
  /** The directory of a controller, or `null` where this version lacks it. */
  directoryFor(group: string, controller: "memory" | "cpu" | "pids" | "cpuacct"): string | null;
}

const CPU_PERIOD_US = 100_000;

/** The kernel refuses quotas below a millisecond. */
function cpuQuotaUs(cpuCount: number): number {
  return Math.max(1_000, Math.round(cpuCount * CPU_PERIOD_US));
}

/** A weight of 100 equals 1024 shares of version 1, as engines have it. */
export function cpuShares(cpuWeight: number): number {
  return Math.max(2, Math.round((cpuWeight * 1_024) / 100));
}

export function makeDirectory(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o755 });
}

/** `false` while it is in use. */
export function removeDirectory(path: string): boolean {
  try {
    rmdirSync(path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return true;
    if (code === "EBUSY" || code === "ENOTEMPTY") return false;
    throw error;
  }
}

export function write(directory: string, file: string, value: number | string): void {
  writeFileSync(join(directory, file), String(value));
}

/** For files that some kernels lack. */
function writeIfThere(directory: string, file: string, value: number | string): boolean {
  try {
    readFileSync(join(directory, file));
  } catch {
    return false;
  }
  write(directory, file, value);
  return true;
}

/** `null` when there is no such file, or the group is gone. */
export function read(directory: string | null, file: string): string | null {
  if (directory === null) return null;
  try {
    return readFileSync(join(directory, file), "latin1");
  } catch {
    return null;
  }
}

/** Version 1 writes "no limit" as a number near the largest one. */
const UNLIMITED_FROM = 2 ** 60;

export function readNumber(directory: string | null, file: string): number | null {
  const text = read(directory, file);
  const value = text === null ? Number.NaN : Number(text);
  return Number.isFinite(value) && value < UNLIMITED_FROM ? value : null;
}

/** A line `name value` of a short file. Some are read with every command, so this takes few steps. */
export function readCounter(directory: string | null, file: string, name: string): number | null {
  const text = directory === null ? null : readShort(`${directory}/${file}`);
  const [begin, lines] = [`\n${name} `, `\n${text ?? ""}`];
  const at = lines.indexOf(begin);
  const value = at < 0 ? Number.NaN : Number.parseInt(lines.slice(at + begin.length), 10);
  return Number.isNaN(value) ? null : value;
}

/** Shared: nothing else runs between a read and the use of its result. */
const shortFile = Buffer.allocUnsafeSlow(4_096);

function readShort(path: string): string | null {
  let fd: number | null = null;
  try {
    fd = openSync(path, "r");
    return shortFile.toString("latin1", 0, readSync(fd, shortFile, 0, shortFile.length, null));
  } catch {
    return null;
  } finally {
    if (fd !== null) closeSync(fd);
  }
}

export function readPids(directory: string): readonly number[] {
  return (read(directory, "cgroup.procs") ?? "").split("\n").filter(Boolean).map(Number);
}

export function versionOne(trees: Readonly<Partial<Record<Tree, string>>>): Dialect {
  const mountPoints = [...new Set(Object.values(trees))];
  const directoryFor = (group: string, tree: Tree) => {
    const mountPoint = trees[tree];
    return mountPoint === undefined ? null : join(mountPoint, group);
  };
  return {
    version: 1,
    entry: "tasks",
    directoriesOf: (group) => mountPoints.map((mountPoint) => join(mountPoint, group)),
    prepare(parent) {
      for (const mountPoint of mountPoints) makeDirectory(join(mountPoint, parent));
    },
    setLimits(group, { memoryBytes, cpuCount, cpuWeight, pidsMax }) {
      const memory = directoryFor(group, "memory");
      if (memory !== null && memoryBytes !== undefined) setMemory(memory, memoryBytes);
      const cpu = directoryFor(group, "cpu");
      if (cpu !== null && cpuCount !== undefined) {
        write(cpu, "cpu.cfs_period_us", CPU_PERIOD_US);
        write(cpu, "cpu.cfs_quota_us", cpuQuotaUs(cpuCount));
      }
      if (cpu !== null && cpuWeight !== undefined) writeIfThere(cpu, "cpu.shares", cpuShares(cpuWeight));
      const pids = directoryFor(group, "pids");
      if (pids !== null && pidsMax !== undefined) write(pids, "pids.max", pidsMax);
    },
    directoryFor,
  };
}

/** The limit with swap may not be below the one without, hence the order. Without swap accounting there is none. */
function setMemory(directory: string, memoryBytes: number): void {
  write(directory, "memory.limit_in_bytes", memoryBytes);
  writeIfThere(directory, "memory.memsw.limit_in_bytes", memoryBytes);
}

/** A fleet that is alone in its base group moves itself here, so that the base can delegate controllers. */
const FLEET_LEAF = "sandlot-fleet";

export interface VersionTwoPlace {
  readonly mountPoint: string;
  /** The parent of all our groups: the root, or a group delegated to us. */
  readonly base: string;
  /** The controllers of the base. */
  readonly controllers: readonly Controller[];
  readonly ownPid: number;
}

export function versionTwo(place: VersionTwoPlace): Dialect {
  const { mountPoint, base } = place;
  const directoryOf = (group: string) => join(mountPoint, base, group);
  return {
    version: 2,
    entry: "cgroup.procs",
    directoriesOf: (group) => [directoryOf(group)],
    prepare(parent) {
      handDown(directoryOf(""), place);
      let path = "";
      for (const name of parent.split("/")) {
        path = join(path, name);
        makeDirectory(directoryOf(path));
        handDown(directoryOf(path), place);
      }
    },
    setLimits(group, { memoryBytes, cpuCount, cpuWeight, pidsMax }) {
      const directory = directoryOf(group);
      if (memoryBytes !== undefined) {
        write(directory, "memory.max", memoryBytes);
        writeIfThere(directory, "memory.swap.max", 0);
      }
      if (cpuCount !== undefined) write(directory, "cpu.max", `${cpuQuotaUs(cpuCount)} ${CPU_PERIOD_US}`);
      if (cpuWeight !== undefined) writeIfThere(directory, "cpu.weight", cpuWeight);
      if (pidsMax !== undefined) write(directory, "pids.max", pidsMax);
    },
    directoryFor: (group) => directoryOf(group),
  };
}

function handDown(directory: string, { controllers, ownPid }: VersionTwoPlace): void {
  const given = (read(directory, "cgroup.subtree_control") ?? "").split(/\s+/);
  if (controllers.every((controller) => given.includes(controller))) return;
  const wanted = controllers.map((controller) => `+${controller}`).join(" ");
  try {
    write(directory, "cgroup.subtree_control", wanted);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EBUSY") throw error;
    stepAside(directory, ownPid, error);
    write(directory, "cgroup.subtree_control", wanted);
  }
}

/** Moves only this process: other processes in the group are not ours. */
function stepAside(directory: string, ownPid: number, cause: unknown): void {
  if (readPids(directory).some((pid) => pid !== ownPid)) throw cause;
  makeDirectory(join(directory, FLEET_LEAF));
  write(join(directory, FLEET_LEAF), "cgroup.procs", ownPid);
}
