/**
 * Resource limits of a process, set by `prlimit` before it executes its program.
 *
 * - At the start, for the daemon and all its descendants: no core dumps, and no file beyond the disk budget. A core
 *   limit of one byte also keeps the kernel from starting the host's crash handler, which 0 does not.
 * - Before commands, where there are no control groups: memory and processes. Memory is RLIMIT_DATA, which counts
 *   privately writable memory. RLIMIT_AS would also count addresses that are only reserved, of which Java and Go take
 *   many gigabytes. It holds per process, so a sandbox may use it once per process. Since Linux 5.14 processes are
 *   counted per user namespace, and so per sandbox; before, together with all others of the uid.
 */

import { accessSync, constants } from "node:fs";
import { release } from "node:os";
import type { RequestedLimits } from "./limits.ts";

const PRLIMIT = "/usr/bin/prlimit";
/** Node reserves 512 MB, writable and untouched, for code to compile; without them it does not start. */
export const RESERVED_BYTES = 640 * 1024 * 1024;
/** Since this version the kernel counts processes per user namespace. */
const COUNTS_PER_NAMESPACE_FROM = [5, 14] as const;

export function hasPrlimit(path = PRLIMIT): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

export function countsProcessesPerSandbox(kernel = release()): boolean {
  const [major = 0, minor = 0] = kernel.split(/[.-]/).map(Number);
  const [wantedMajor, wantedMinor] = COUNTS_PER_NAMESPACE_FROM;
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
}

/** Put before the engine's command line. */
export function startRlimits({ fileMaxBytes }: RequestedLimits): readonly string[] {
  if (!hasPrlimit()) return [];
  const file = fileMaxBytes === undefined ? [] : [`--fsize=${fileMaxBytes}:${fileMaxBytes}`];
  return [PRLIMIT, "--core=1:1", ...file, "--"];
}

/** Put before each command. Empty when there is nothing to limit, or no `prlimit`. */
export function commandRlimits(requested: { memoryBytes?: number; pidsMax?: number }): readonly string[] {
  const dataBytes = (requested.memoryBytes ?? 0) + RESERVED_BYTES;
  const options = [
    ...(requested.memoryBytes === undefined ? [] : [`--data=${dataBytes}:${dataBytes}`]),
    ...(requested.pidsMax === undefined || !countsProcessesPerSandbox()
      ? []
      : [`--nproc=${requested.pidsMax}:${requested.pidsMax}`]),
  ];
  return options.length === 0 || !hasPrlimit() ? [] : [PRLIMIT, ...options, "--"];
}
