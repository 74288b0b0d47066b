/** The refusal of a store that was lost and does not yet know which sandboxes exist. */

import { SandlotError } from "@sandlot/contract";

export function throwIfRecovering(answer: { kind: string; epoch?: string }, lifetimeMs: number): void {
  if (answer.kind === "recovering" && answer.epoch !== undefined) {
    throw new SandlotError("store_recovering", { epoch: answer.epoch, retryAfterMs: lifetimeMs });
  }
}
