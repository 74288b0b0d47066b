/**
 * The result of a command whose daemon died and was started again: it is over.
 */

import type { ExecResult, FollowEnd } from "@sandlot/contract";

const OUTCOME = { status: "lost", exitCode: null, signal: null } as const;

export function lostResult(execId: string, durationMs: number): ExecResult {
  const streams = { stdout: "", stderr: "", stdoutDroppedBytes: 0, stderrDroppedBytes: 0 };
  return { execId, ...OUTCOME, ...streams, durationMs };
}

/** With how much of its output has arrived. */
export function lostEnd(
  execId: string,
  { stdout, stderr }: { readonly stdout: number; readonly stderr: number },
  durationMs: number,
): FollowEnd {
  return { execId, ...OUTCOME, stdoutBytes: stdout, stderrBytes: stderr, durationMs };
}
