/**
 * The file system of a path. On one that several hosts can mount, SQLite's shared memory is not shared: opening
 * "succeeds", and two hosts then write one database without noticing each other.
 */

import { statfsSync } from "node:fs";

/** By Linux's number of each type. */
const SHARED: Readonly<Record<number, string>> = {
  26985: "NFS", // 0x6969
  4283649346: "CIFS", // 0xff534d42
  4266872130: "SMB", // 0xfe534d42
  20859: "SMB", // 0x517b
  1702057286: "FUSE", // 0x65735546
  16914839: "9p", // 0x01021997
  12805120: "Ceph", // 0x00c36400
};

/** The type's name if several hosts can mount it; `null` if not, or if it is unknown. */
export function sharedFileSystem(path: string, typeOf: (path: string) => number = linuxType): string | null {
  return SHARED[typeOf(path) >>> 0] ?? null;
}

function linuxType(path: string): number {
  return process.platform === "linux" ? statfsSync(path).type : 0;
}
