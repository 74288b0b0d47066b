/**
 * How large file systems in memory may be (`/tmp`, the home, `/dev/shm`, the daemon's own). What lies in them counts as
 * the sandbox's memory and cannot be taken back: were they together as large as its limit, filling them would leave the
 * kernel nothing to do but kill everything, the daemon at last.
 */

/** There are four of them, so that half of the memory is left for programs when all are full. */
const SHARE = 8;

export function memoryFileSystemBytes(wantedBytes: number, memoryBytes: number | undefined): number {
  return memoryBytes === undefined ? wantedBytes : Math.min(wantedBytes, Math.floor(memoryBytes / SHARE));
}
