/**
 * Picks the sandboxes to evict. Pure: records and their known activity in, an order out.
 *
 * Blanks come first, because no thread uses them; then the longest parked. Sandboxes that are busy, or of unknown
 * activity, come last. A held sandbox is never a candidate.
 */

import type { UserId } from "@sandlot/contract";
import { isBlank, isParked, type SandboxRecord } from "../../store/record.ts";

/** `user` limits the choice to that user's sandboxes, when the user's own limit was reached. */
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
