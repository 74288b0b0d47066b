/** One run of a step over the rows that this process knows, and what became of it. */

import { MirrorNeeded, RowsNeeded } from "./row-needs.ts";
import type { RowKey } from "./row-server.ts";
import type { RowView } from "./row-view.ts";

export type Outcome<T> =
  | { readonly kind: "value"; readonly value: T }
  /** It may have failed over outdated rows. */
  | { readonly kind: "error"; readonly error: unknown }
  | { readonly kind: "rows"; readonly keys: readonly RowKey[] }
  | { readonly kind: "mirror" };

export function attempt<T>(view: RowView, step: (view: RowView) => T): Outcome<T> {
  try {
    return { kind: "value", value: step(view) };
  } catch (error) {
    if (error instanceof RowsNeeded) return { kind: "rows", keys: error.keys };
    return error instanceof MirrorNeeded ? { kind: "mirror" } : { kind: "error", error };
  }
}

export function settled<T>(outcome: Extract<Outcome<T>, { kind: "value" | "error" }>): T {
  if (outcome.kind === "error") throw outcome.error;
  return outcome.value;
}

export function encoded(view: RowView): Map<RowKey, string | null> {
  return new Map([...view.writes].map(([key, value]) => [key, value === null ? null : JSON.stringify(value)]));
}

export function isCovered(reads: ReadonlyMap<RowKey, number>, present: ReadonlyMap<RowKey, number> | null): boolean {
  if (reads.size === 0) return true;
  if (present === null) return false;
  for (const [key, seq] of reads) if (present.get(key) !== seq) return false;
  return true;
}
