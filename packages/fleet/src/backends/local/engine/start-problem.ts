/**
 * Why a sandbox did not start: the message of its processes or of bubblewrap, and a fix.
 */

import { SandlotError } from "@sandlot/contract";

/** A sandbox's processes did not start. The message is theirs. */
export class StartProblem extends Error {
  override readonly name = "StartProblem";
}

/** What the machine refuses to all sandboxes, by bubblewrap's messages. */
const REFUSALS: readonly (readonly [RegExp, string])[] = [
  [
    /Creating new namespace failed|No permissions to create.* namespace|setting up uid map|userns/i,
    "allow unprivileged user namespaces: sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, and on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0 or a profile for bwrap",
  ],
  [
    /Can't mount proc/i,
    "run the fleet where /proc is not masked (in Docker: --security-opt systempaths=unconfined), or use another backend",
  ],
  [/pivot_root|Failed to make .* slave/i, "run the fleet where mounts are allowed, or use another backend"],
];

export function explainStart(error: unknown): unknown {
  if (!(error instanceof StartProblem)) return error;
  const problem = error.message;
  const fix = REFUSALS.find(([pattern]) => pattern.test(problem))?.[1];
  if (fix === undefined) return new SandlotError("create_failed", { backend: "local", problem }, { cause: error });
  return new SandlotError("isolation_unavailable", { backend: "local", problem, fix }, { cause: error });
}
