/** A number also for what did not exit by itself, as shells have it: frameworks know nothing else. */

import type { ExecResult } from "@sandlot/contract";

export function exitCodeOf({ status, exitCode }: Pick<ExecResult, "status" | "exitCode">): number {
  return exitCode ?? (status === "timed_out" ? 124 : 137);
}
