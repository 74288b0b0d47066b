/**
 * How many files and processes this process may have. Podman, when it gets any limit at all, raises these two to a
 * million, which fails on a machine or in a container that confines the engine. So every container names them, with our
 * own limits at most.
 */

import { readFileSync } from "node:fs";

export interface OwnLimits {
  readonly nofile: number;
  readonly nproc: number;
}

const FILES_MAX = 1_048_576;
/** Podman's own default. */
const PROCESSES_MAX = 32_768;

/** `null` where the kernel does not report them. */
export function ownLimits(): OwnLimits | null {
  try {
    const text = readFileSync("/proc/self/limits", "utf8");
    return {
      nofile: hardLimit(text, "Max open files", FILES_MAX),
      nproc: hardLimit(text, "Max processes", PROCESSES_MAX),
    };
  } catch {
    return null;
  }
}

function hardLimit(text: string, name: string, most: number): number {
  const found = new RegExp(`^${name}\\s+\\S+\\s+(\\S+)`, "m").exec(text)?.[1];
  return found === undefined || found === "unlimited" ? most : Math.min(Number(found), most);
}
