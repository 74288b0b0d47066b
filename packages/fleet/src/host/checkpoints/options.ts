/** What checkpoints may use, in one place: bounds, what is left out, and the process that does the work. */

import type { CheckpointBounds } from "../../backend/checkpoints.ts";

export interface CheckpointOptions {
  /** Paths relative to the workspace that are never kept: what they hold can be fetched again. */
  readonly excluded: readonly string[];
  /** Checkpoints of one thread. Beyond, the oldest unprotected one goes; labelled ones count and never go. */
  readonly threadCheckpointsMax: number;
  /** Checkpoints of all threads of one user. */
  readonly userCheckpointsMax: number;
  /** An unprotected checkpoint of this age goes. */
  readonly maxAgeMs: number;
  /** Bytes that one thread's checkpoints have added to the store. */
  readonly threadBytesMax: number;
  /** Bytes in the store of one user. */
  readonly userBytesMax: number;
  /** What one take may read of files that have changed. */
  readonly readBytesMax: number;
  /** What stays free on the disk. */
  readonly freeBytesMin: number;
  /**
   * While a process may write, a file that changed this short before the walk is read again by the next one: a write
   * through a mapping need not change any time. The kernel's write-back may make it longer.
   */
  readonly slackMs: number;
  /** Every so many checkpoints of a thread, all files are read. */
  readonly verifyEvery: number;
  /** Processes that walk, compare and restore at the same time. */
  readonly workersMax: number;
  /** The heap of such a process. Buffers come on top. */
  readonly workerHeapMb: number;
  /** A worker without work ends after this time. */
  readonly workerIdleMs: number;
  /** A worker that has said nothing for this long is stuck, and is killed. */
  readonly silenceMaxMs: number;
  /** The largest archive that a thread is seeded from. */
  readonly archiveBytesMax: number;
}

const MIB = 1024 ** 2;
const GIB = 1024 ** 3;
const DAY_MS = 24 * 3_600_000;

export const CHECKPOINT_DEFAULTS: CheckpointOptions = {
  excluded: [".home/.cache", ".home/.npm/_cacache"],
  threadCheckpointsMax: 200,
  userCheckpointsMax: 2_000,
  maxAgeMs: 30 * DAY_MS,
  threadBytesMax: 20 * GIB,
  userBytesMax: 50 * GIB,
  readBytesMax: 20 * GIB,
  freeBytesMin: 512 * MIB,
  slackMs: 60_000,
  verifyEvery: 20,
  workersMax: 2,
  workerHeapMb: 160,
  workerIdleMs: 60_000,
  silenceMaxMs: 120_000,
  archiveBytesMax: 10 * GIB,
};

/** The options that a configuration sets. */
export function boundedBy(bounds: CheckpointBounds | undefined): Partial<CheckpointOptions> {
  if (bounds === undefined) return {};
  return {
    excluded: bounds.leftOut,
    threadCheckpointsMax: bounds.perThreadMax,
    userCheckpointsMax: bounds.perUserMax,
    maxAgeMs: bounds.maxAgeDays * DAY_MS,
    threadBytesMax: bounds.perThreadBytes,
    userBytesMax: bounds.perUserBytes,
    readBytesMax: bounds.readBytes,
    freeBytesMin: bounds.freeBytes,
  };
}

/** Unprotected checkpoints are pushed out; these are not: the newest ones, and the last one of each of these days. */
export const PROTECTED_NEWEST = 3;
export const PROTECTED_DAYS = 7;
