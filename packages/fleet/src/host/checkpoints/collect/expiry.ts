/** Which checkpoints go by age, number and bytes. Pure. */

import { type CheckpointOptions, PROTECTED_DAYS, PROTECTED_NEWEST } from "../options.ts";
import type { CheckpointRecord } from "../records.ts";

const DAY_MS = 24 * 3_600_000;

export interface ThreadRecords {
  readonly thread: string;
  /** Oldest first. */
  readonly records: readonly CheckpointRecord[];
}

interface Candidate {
  readonly thread: string;
  readonly record: CheckpointRecord;
}

type Bounds = Pick<
  CheckpointOptions,
  "maxAgeMs" | "threadCheckpointsMax" | "userCheckpointsMax" | "threadBytesMax" | "userBytesMax"
>;

/** Newer ones never push these out: a sandbox could erase its history by writing much. */
function protectedIds(records: readonly CheckpointRecord[], now: number): ReadonlySet<string> {
  const kept = new Set<string>();
  const days = new Set<number>();
  for (const [at, { id, label, takenAt }] of [...records].reverse().entries()) {
    const day = Math.floor(takenAt / DAY_MS);
    const isLastOfDay = now - takenAt < PROTECTED_DAYS * DAY_MS && !days.has(day);
    days.add(day);
    if (at < PROTECTED_NEWEST || isLastOfDay || label !== null) kept.add(id);
  }
  return kept;
}

/** `usedBytes`: of the user's store. Also `inUse` stays: targets of unfinished restores. */
export function expired(
  threads: readonly ThreadRecords[],
  now: number,
  bounds: Bounds,
  usedBytes: number,
  inUse: ReadonlySet<string>,
): readonly Candidate[] {
  const going: Candidate[] = [];
  const left: Candidate[] = [];
  let total = 0;
  for (const { thread, records } of threads) {
    const kept = protectedIds(records, now);
    let count = records.length;
    let bytes = records.reduce((sum, { addedBytes }) => sum + addedBytes, 0);
    for (const record of records) {
      const isDue =
        now - record.takenAt > bounds.maxAgeMs ||
        count > bounds.threadCheckpointsMax ||
        bytes > bounds.threadBytesMax * FULL;
      const isFree = !kept.has(record.id) && !inUse.has(record.id);
      if (isFree && isDue) {
        going.push({ thread, record });
        count--;
        bytes -= record.addedBytes;
      } else if (isFree) left.push({ thread, record });
    }
    total += count;
  }
  let bytes = usedBytes - going.reduce((sum, { record }) => sum + record.addedBytes, 0);
  left.sort((a, b) => a.record.takenAt - b.record.takenAt);
  for (const candidate of left) {
    if (total <= bounds.userCheckpointsMax && bytes <= bounds.userBytesMax * FULL) break;
    going.push(candidate);
    total--;
    bytes -= candidate.record.addedBytes;
  }
  return going;
}

/** Some room is made before a bound refuses the next checkpoint. */
const FULL = 0.9;
