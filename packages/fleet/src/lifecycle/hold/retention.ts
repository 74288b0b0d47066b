/** Whether a sandbox that nobody holds any more is worth keeping for its thread. Pure. */

import type { StopReason } from "@sandlot/contract";
import { isAnonymous, type SandboxRecord } from "../../store/record.ts";
import type { Slot } from "./slot.ts";

type Kept = Pick<Slot, "thread" | "origin" | "used" | "warmed" | "expiresAt" | "record">;

/** `record` is as it was when our hold on it had been given back. */
export function reasonNotToKeep(slot: Kept, record: SandboxRecord, storeNow: number): StopReason | null {
  if (isAnonymous(slot.thread)) return "released";
  if (storeNow >= slot.expiresAt) return "expired";
  // Made for callers who all gave up before they had it: a cancelled acquire leaves nothing.
  const unused = !slot.used && !slot.warmed && slot.origin !== "parked";
  return unused && isUntouched(slot.record, record) ? "create-abandoned" : null;
}

/**
 * Nobody but us has held it since: besides our own release, and the note that a bind is complete, nothing was written.
 * Somebody else's hold and release are two writes more. And nobody has used it: not even we, under a later hold.
 */
export function isUntouched(since: SandboxRecord, now: SandboxRecord): boolean {
  const unused = now.boundFrom !== null || now.arrival !== null;
  return unused && now.createdAt === since.createdAt && now.revision <= since.revision + 2;
}
