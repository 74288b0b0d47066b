/**
 * Limits that find hangs on a busy machine: the time in which processes ran or had nothing to do. The time in which one of
 * them was ready to run, and had no processor, does not count.
 *
 * Invariants
 * - A process that hangs uses up its limit at the speed of the wall clock: it either runs or waits for nothing.
 * - A limit ends after `STRETCH_MAX` times its length, however busy the machine is.
 * - Where the kernel does not tell (it is Linux that does), own time is wall time.
 */

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const LOOK_MS = 100;
const STRETCH_MAX = 15;

export interface Outcome<T> {
  /** `null`: the limit has passed. */
  readonly value: T | null;
  readonly wallMs: number;
  /** For how much of it the processes had no processor. */
  readonly starvedMs: number;
}

/** Looks until `look` has a value, for `ms` of the own time of the processes. */
export async function withinOwnTime<T>(
  ms: number,
  pids: () => readonly number[],
  look: () => T | null | Promise<T | null>,
): Promise<Outcome<T>> {
  const startedAt = performance.now();
  let starvedMs = 0;
  let before = turnsOf(pids());
  let lookedAt = startedAt;
  for (;;) {
    const value = await look();
    const now = performance.now();
    const turns = turnsOf(pids());
    // The one that waited longest: the others may have waited at the same time.
    let waitedMs = 0;
    for (const [pid, turn] of turns) waitedMs = Math.max(waitedMs, waitedSince(before.get(pid), turn, now - lookedAt));
    starvedMs += Math.min(waitedMs, now - lookedAt);
    [before, lookedAt] = [turns, now];
    const wallMs = now - startedAt;
    if (value !== null || wallMs - starvedMs > ms || wallMs > ms * STRETCH_MAX) return { value, wallMs, starvedMs };
    await sleep(LOOK_MS);
  }
}

export function describeTime({ wallMs, starvedMs }: Outcome<unknown>): string {
  return `${Math.round(wallMs)} ms, of which ${Math.round(starvedMs)} ms without a processor`;
}

/** Of the main thread of a process, in milliseconds. */
interface Turn {
  readonly ranMs: number;
  /** In the queue of a processor. The kernel adds a wait when it is over. */
  readonly waitedMs: number;
  readonly isReady: boolean;
}

function waitedSince(before: Turn | undefined, { ranMs, waitedMs, isReady }: Turn, passedMs: number): number {
  if (before === undefined) return 0;
  const known = Math.max(0, waitedMs - before.waitedMs);
  return isReady ? Math.max(known, passedMs - (ranMs - before.ranMs)) : known;
}

function turnsOf(pids: readonly number[]): ReadonlyMap<number, Turn> {
  const turns = new Map<number, Turn>();
  for (const pid of pids) {
    try {
      const [ranNs, waitedNs] = readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ").map(Number);
      const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
      // This process is always ready: it looks.
      const isReady = pid !== process.pid && stat.slice(stat.lastIndexOf(")") + 2).startsWith("R");
      turns.set(pid, { ranMs: (ranNs ?? 0) / 1e6, waitedMs: (waitedNs ?? 0) / 1e6, isReady });
    } catch {
      // It has ended, or this system has no such files.
    }
  }
  return turns;
}
