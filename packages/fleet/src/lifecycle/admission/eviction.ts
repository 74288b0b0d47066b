/**
 * Whom to evict. Pure: records and what is known of their activity in, an order out.
 *
 * Blanks first, because nobody misses them; then what has been parked longest; what has work going on inside, or of
 * which that is not known, last. What somebody holds is never a candidate.
 */

import type { UserId } from "@sandlot/contract";
import { isBlank, isParked, type SandboxRecord } from "../../store/record.ts";

/** `user` limits the choice to one user's sandboxes, when it is that user's limit that was reached. */
export function planEviction(
  records: readonly SandboxRecord[],
  user: UserId | null,
  isIdle: (record: SandboxRecord) => boolean,
): readonly SandboxRecord[] {
  const blanks = user === null ? records.filter((record) => isBlank(record)) : [];
  const parked = records
    .filter((record) => isParked(record) && (user === null || record.user === user))
    .sort((a, b) => (a.parkedAt ?? 0) - (b.parkedAt ?? 0));
  const idle = parked.filter(isIdle);
  const busy = parked.filter((record) => !isIdle(record));
  return [...blanks.sort((a, b) => a.createdAt - b.createdAt), ...idle, ...busy];
}
