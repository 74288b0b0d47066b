/**
 * The database file from outside: its identity, and the marker beside it.
 *
 * Only SQLite ever opens the database: closing any descriptor of a file gives up all of the process's POSIX locks on
 * it, also those by which a connection keeps peers from deleting the WAL it writes.
 *
 * The marker `<path>.epoch` records that a store was here, its epoch, and its file. Without it a deleted database would
 * look like one that was never made, and a backup in its place like the original.
 * It is written after the database exists, so a marker without a database always means a removed database.
 */

import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, statSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { type Epoch, SandlotError } from "@sandlot/contract";

export interface FileIdentity {
  readonly dev: bigint;
  readonly ino: bigint;
  /** When the file was made, in nanoseconds; 0 where the file system does not say. */
  readonly born: bigint;
  readonly sizeBytes: bigint;
}

/** `null`: there is no such file. */
export function identify(path: string): FileIdentity | null {
  const stat = statSync(path, { bigint: true, throwIfNoEntry: false });
  if (stat === undefined) return null;
  if (!stat.isFile()) throw new SandlotError("store_corrupt", { path, problem: "it is not a regular file" });
  // Without a birth time from the kernel, Node shows the time of the last change in its place.
  const born = stat.birthtimeNs === stat.ctimeNs ? 0n : stat.birthtimeNs;
  return { dev: stat.dev, ino: stat.ino, born, sizeBytes: stat.size };
}

/** For an open file: its inode cannot be reused meanwhile. */
export function isSameOpenFile(a: FileIdentity, b: FileIdentity): boolean {
  return a.ino === b.ino && a.dev === b.dev;
}

export interface Marker {
  readonly epoch: Epoch;
  readonly ino: string;
  readonly born: string;
}

function markerPath(path: string): string {
  return `${path}.epoch`;
}

/** `null`: none. `unreadable`: a file that Sandlot did not write. */
export function readMarker(path: string): Marker | "unreadable" | null {
  let text: string;
  try {
    text = readFileSync(markerPath(path), "utf8");
  } catch (error) {
    if (codeOf(error) === "ENOENT") return null;
    throw error;
  }
  try {
    const value: unknown = JSON.parse(text);
    return isMarker(value) ? value : "unreadable";
  } catch {
    return "unreadable";
  }
}

export function markerOf(epoch: Epoch, file: FileIdentity): Marker {
  return { epoch, ino: String(file.ino), born: String(file.born) };
}

/** Whether the marker was written for this file. The birth time decides, because inode numbers are reused. */
export function isMarkerOf(marker: Marker, file: FileIdentity): boolean {
  if (marker.born !== "0" && file.born !== 0n) return marker.born === String(file.born);
  return marker.ino === String(file.ino);
}

/** Atomic, and on disk when it returns. */
export function writeMarker(path: string, marker: Marker, suffix: string): void {
  const draft = `${markerPath(path)}.new-${suffix}`;
  try {
    const fd = openSync(draft, "wx", 0o600);
    try {
      writeSync(fd, `${JSON.stringify(marker)}\n`);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(draft, markerPath(path));
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  }
  syncDirectory(dirname(path));
}

export function syncDirectory(directory: string): void {
  // Windows has no directory sync, and its file system orders these writes by itself.
  if (process.platform === "win32") return;
  const fd = openSync(directory, "r");
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

export function codeOf(error: unknown): string | null {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : null;
}

function isMarker(value: unknown): value is Marker {
  if (typeof value !== "object" || value === null) return false;
  const { epoch, ino, born } = value as Readonly<Record<string, unknown>>;
  return typeof epoch === "string" && typeof ino === "string" && typeof born === "string";
}
