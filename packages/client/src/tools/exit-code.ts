/** A number also for a command that did not exit by itself, as in shells: frameworks support nothing else. */

import type { ExecResult } from "@sandlot/contract";

export function exitCodeOf({ status, exitCode }: Pick<ExecResult, "status" | "exitCode">): number {
  return exitCode ?? (status === "timed_out" ? 124 : 137);
}
