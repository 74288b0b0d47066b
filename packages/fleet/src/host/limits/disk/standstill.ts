/** Processes that stand still while files are counted, whichever way they are made to. */

import { readFileSync } from "node:fs";

export interface Standstill {
  /** Host pids of what stands still. */
  readonly pids: readonly number[];
  /** Lets them go on. Whether all that there is stood still until now. */
  release(): boolean;
}

/** New processes of one that did not stand still yet come in the next round. */
export const ROUNDS_MAX = 20;
export const STANDSTILL_LOOKS_MAX = 50;
export const LOOK_MS = 4;

export interface ProcessState {
  readonly state: string;
  readonly startTicks: number;
}

export function stateOf(pid: number): ProcessState | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return { state: fields[0] ?? "", startTicks: Number(fields[19]) };
  } catch {
    return null;
  }
}

/** Also one that only waits for its parent to hear of it. */
export function isEnded(pid: number): boolean {
  return "ZX".includes(stateOf(pid)?.state ?? "X");
}
