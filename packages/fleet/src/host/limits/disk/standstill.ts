/** Processes that are held while files are counted, by either method. */

import { readFileSync } from "node:fs";

export interface Standstill {
  /** Host pids of the held processes. */
  readonly pids: readonly number[];
  /** Lets them continue. Returns whether all processes stood still until now. */
  release(): boolean;
}

/** A process that was not yet held may start new ones; they come in the next round. */
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

/** Includes a zombie. */
export function isEnded(pid: number): boolean {
  return "ZX".includes(stateOf(pid)?.state ?? "X");
}
