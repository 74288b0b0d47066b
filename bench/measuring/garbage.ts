/**
 * Collects garbage on request, so that one side's garbage is not collected in the other side's time, and the heap size
 * shows only what is in use.
 */

import { setImmediate } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

type Collector = (options?: { type: "minor" | "major" }) => void;

/** A new context gets `gc` as soon as the flag is set; this one never does. So no second process is needed. */
function exposeCollector(): Collector {
  setFlagsFromString("--expose-gc");
  const gc: unknown = runInNewContext("gc");
  if (typeof gc !== "function") throw new Error("This Node does not let a program collect its garbage.");
  return gc as Collector;
}

const collect = exposeCollector();

/** Empties the nursery: a batch's allocations are then collected in its own time. Takes well under a millisecond. */
export function collectYoung(): void {
  collect({ type: "minor" });
}

/** A heap is settled when collecting again frees less than this. */
const SETTLED_BYTES = 4_096;
const COLLECTIONS_MAX = 20;

/** The bytes in use, after everything collectable is gone. Includes buffers and strings outside the heap. */
export async function settledHeapBytes(): Promise<number> {
  let before = Number.POSITIVE_INFINITY;
  for (let count = 0; count < COLLECTIONS_MAX; count += 1) {
    // Finalizers and promise reactions run between turns, and free more.
    await setImmediate();
    collect({ type: "major" });
    const { heapUsed, external } = process.memoryUsage();
    const now = heapUsed + external;
    if (before - now < SETTLED_BYTES) return now;
    before = now;
  }
  return before;
}
