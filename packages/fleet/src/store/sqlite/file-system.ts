/**
 * Which file system a path is on. On one that several hosts can mount, SQLite's shared memory is not shared: opening
 * "succeeds", and two hosts then write one database without knowing of each other.
 */

import { statfsSync } from "node:fs";

/** By the number that Linux gives each kind. */
const SHARED: Readonly<Record<number, string>> = {
  26985: "NFS", // 0x6969
  4283649346: "CIFS", // 0xff534d42
  4266872130: "SMB", // 0xfe534d42
  20859: "SMB", // 0x517b
  1702057286: "FUSE", // 0x65735546
  16914839: "9p", // 0x01021997
  12805120: "Ceph", // 0x00c36400
};

/** The kind's name where it can be mounted by several hosts; `null` where it cannot, or where nobody can tell. */
export function sharedFileSystem(path: string, typeOf: (path: string) => number = linuxType): string | null {
  return SHARED[typeOf(path) >>> 0] ?? null;
}

function linuxType(path: string): number {
  return process.platform === "linux" ? statfsSync(path).type : 0;
}
