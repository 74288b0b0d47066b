/**
 * Sizes of the file systems in memory (`/tmp`, the home, `/dev/shm`, the daemon's own). Their content counts as the
 * sandbox's memory and cannot be reclaimed. If together they were as large as its limit, filling them would make the
 * kernel kill everything, the daemon last.
 */

/** There are four of them, so half of the memory is left for programs when all are full. */
const SHARE = 8;

export function memoryFileSystemBytes(wantedBytes: number, memoryBytes: number | undefined): number {
  return memoryBytes === undefined ? wantedBytes : Math.min(wantedBytes, Math.floor(memoryBytes / SHARE));
}
