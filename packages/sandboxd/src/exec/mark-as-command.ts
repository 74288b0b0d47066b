/**
 * What tells a command from the daemon, from its very start.
 */

import { writeFileSync } from "node:fs";

/** The kernel then takes commands before the daemon when memory runs out, and the host can tell them apart. */
export function markAsCommand(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, "1000");
  } catch {
    // It has ended already, or there is no /proc.
  }
}
