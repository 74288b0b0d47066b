/** Whether a sandbox that nobody holds any more is worth keeping for its thread. Pure. */

import type { StopReason } from "@sandlot/contract";
import { isAnonymous } from "../store/record.ts";
import type { Slot } from "./slot.ts";

export function reasonNotToKeep(
  slot: Pick<Slot, "thread" | "origin" | "wanted" | "expiresAt">,
  storeNow: number,
): StopReason | null {
  if (isAnonymous(slot.thread)) return "released";
  if (storeNow >= slot.expiresAt) return "expired";
  // Made for callers who all gave up before they had it: a cancelled acquire leaves nothing.
  if (!slot.wanted && slot.origin !== "parked") return "create-abandoned";
  return null;
}
