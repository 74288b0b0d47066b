/** Whether to keep a sandbox without holders for its thread. Pure. */

import type { StopReason } from "@sandlot/contract";
import { isAnonymous, type SandboxRecord } from "../../store/record.ts";
import type { Slot } from "./slot.ts";

type Kept = Pick<Slot, "thread" | "origin" | "used" | "warmed" | "expiresAt" | "record">;

/** `record` is the record after our hold was given back. */
export function reasonNotToKeep(slot: Kept, record: SandboxRecord, storeNow: number): StopReason | null {
  if (isAnonymous(slot.thread)) return "released";
  if (storeNow >= slot.expiresAt) return "expired";
  // Made for callers that all gave up before they had it: a cancelled acquire leaves nothing.
  const unused = !slot.used && !slot.warmed && slot.origin !== "parked";
  return unused && isUntouched(slot.record, record) ? "create-abandoned" : null;
}

/**
 * True if only our hold existed since: the record has no writes but our release and the confirmation of a bind. Another
 * hold and release would be two more writes. The sandbox is also unused: no later hold of ours used it.
 */
export function isUntouched(since: SandboxRecord, now: SandboxRecord): boolean {
  const unused = now.boundFrom !== null || now.arrival !== null;
  return unused && now.createdAt === since.createdAt && now.revision <= since.revision + 2;
}
