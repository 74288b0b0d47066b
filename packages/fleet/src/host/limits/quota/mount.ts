/** Finds the mounted file system of a directory in the kernel's table: quotas are set on file systems, not on paths. */

import { readFileSync, statSync } from "node:fs";
import { plainPath } from "../hierarchy.ts";

export interface MountedAt {
  readonly mountPoint: string;
  readonly type: string;
  /** The file system's own options. */
  readonly options: readonly string[];
}

/** `null` where the table does not show the device, as with file systems that invent device numbers. */
export function mountOf(directory: string, table = "/proc/self/mountinfo"): MountedAt | null {
  return findMount(readFileSync(table, "utf8"), statSync(directory).dev);
}

/** Of several mounts of one device, the one that shows its root: programs look for that. */
export function findMount(table: string, device: number): MountedAt | null {
  const wanted = deviceNumbers(device);
  const mounts = table.split("\n").flatMap((line) => {
    const [before = "", after = ""] = line.split(" - ");
    const [, , numbers = "", root = "", mountPoint = ""] = before.split(" ");
    const [type = "", , options = ""] = after.split(" ");
    return numbers === wanted ? [{ root, mountPoint: plainPath(mountPoint), type, options: options.split(",") }] : [];
  });
  const found = mounts.find(({ root }) => root === "/") ?? mounts[0];
  if (found === undefined) return null;
  const { mountPoint, type, options } = found;
  return { mountPoint, type, options };
}

/** The kernel's format of a device number: the low parts of both come first. */
function deviceNumbers(device: number): string {
  const number = BigInt(device);
  const major = ((number >> 8n) & 0xfffn) | ((number >> 32n) & ~0xfffn);
  const minor = (number & 0xffn) | ((number >> 12n) & 0xffffff00n);
  return `${major}:${minor}`;
}
