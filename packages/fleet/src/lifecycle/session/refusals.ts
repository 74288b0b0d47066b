/**
 * Refusals of a store that hold for every caller: it was lost and does not yet know which sandboxes exist, or the thread
 * lives on an engine that this instance does not reach.
 */

import { SandlotError, type ThreadId } from "@sandlot/contract";
import type { Elsewhere } from "../../store/store.ts";

export function throwIfRefused(
  answer: Elsewhere | { readonly kind: string; readonly epoch?: string },
  thread: ThreadId,
  lifetimeMs: number,
): void {
  throwIfRecovering(answer, lifetimeMs);
  throwIfElsewhere(answer, thread, lifetimeMs);
}

export function throwIfRecovering(
  answer: { readonly kind: string; readonly epoch?: string },
  lifetimeMs: number,
): void {
  if (answer.kind === "recovering" && answer.epoch !== undefined) {
    throw new SandlotError("store_recovering", { epoch: answer.epoch, retryAfterMs: lifetimeMs });
  }
}

/** Another instance serves the thread; or none does at present, and then waiting may help. */
export function throwIfElsewhere(
  answer: Elsewhere | { readonly kind: string } | null,
  thread: ThreadId | null,
  lifetimeMs: number,
): void {
  if (answer === null || !isElsewhere(answer)) return;
  const { engine, gateways, isReachable } = answer;
  if (isReachable) throw new SandlotError("thread_elsewhere", { thread: thread ?? "", engine, gateways });
  throw new SandlotError("engine_unreachable", { engine, retryAfterMs: lifetimeMs });
}

function isElsewhere(answer: Elsewhere | { readonly kind: string }): answer is Elsewhere {
  return answer.kind === "elsewhere";
}
