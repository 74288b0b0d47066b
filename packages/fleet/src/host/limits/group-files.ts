/**
 * Reads and writes the small files of control groups. Each is one system call of a few microseconds, so they are
 * synchronous.
 */

import { closeSync, mkdirSync, openSync, readFileSync, readSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

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

export const CPU_PERIOD_US = 100_000;

/** The kernel refuses quotas below a millisecond. */
export function cpuQuotaUs(cpuCount: number): number {
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
