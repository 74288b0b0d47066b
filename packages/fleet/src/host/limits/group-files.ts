/**
 * Reading and writing the small files that control groups are made of. Each is one system call on a file of the kernel,
 * a few microseconds, so they are synchronous.
 */

import { closeSync, mkdirSync, openSync, readFileSync, readSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** What one version of control groups does its own way. Paths of groups are relative to the version's mount points. */
export interface Dialect {
  readonly version: 1 | 2;
  /** The directories that make up a group. A process enters all of them. */
  directoriesOf(group: string): readonly string[];
  /** The file in each of them that a process with one thread enters the group by, with a `0`. */
  readonly entry: "tasks" | "cgroup.procs";
  /** Makes the directories above a group usable for groups. */
  prepare(parent: string): void;
  setLimits(
    group: string,
    wish: { memoryBytes?: number; cpuCount?: number; cpuWeight?: number; pidsMax?: number | "max" },
  ): void;
  /** The directory to ask about a controller, or `null` where this dialect does not have it. */
  directoryFor(group: string, controller: "memory" | "cpu" | "pids" | "cpuacct"): string | null;
}

export const CPU_PERIOD_US = 100_000;

/** The kernel refuses quotas below a millisecond. */
export function cpuQuotaUs(cpuCount: number): number {
  return Math.max(1_000, Math.round(cpuCount * CPU_PERIOD_US));
}

/** A weight of 100 is what groups of version 1 call 1024 shares; so do engines. */
export function cpuShares(cpuWeight: number): number {
  return Math.max(2, Math.round((cpuWeight * 1_024) / 100));
}

export function makeDirectory(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o755 });
}

/** `false` while something is in it. */
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

/** For files that a kernel may have been built without. */
export function writeIfThere(directory: string, file: string, value: number | string): boolean {
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

/** Version 1 says "no limit" with a number near the largest one. */
const UNLIMITED_FROM = 2 ** 60;

export function readNumber(directory: string | null, file: string): number | null {
  const text = read(directory, file);
  const value = text === null ? Number.NaN : Number(text);
  return Number.isFinite(value) && value < UNLIMITED_FROM ? value : null;
}

/** A line `name value` of a short file of such lines. Some are read with every command, so it is done with few steps. */
export function readCounter(directory: string | null, file: string, name: string): number | null {
  const text = directory === null ? null : readShort(`${directory}/${file}`);
  const [begin, lines] = [`\n${name} `, `\n${text ?? ""}`];
  const at = lines.indexOf(begin);
  const value = at < 0 ? Number.NaN : Number.parseInt(lines.slice(at + begin.length), 10);
  return Number.isNaN(value) ? null : value;
}

/** One for all: nothing else runs between a read and the use of what it has read. */
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
