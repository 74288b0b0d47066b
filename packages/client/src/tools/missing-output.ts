/** How much of a command's output a result lacks, for any reason. */

import type { ExecResult } from "@sandlot/contract";

export function missingOutput(result: ExecResult): { readonly stdout: number; readonly stderr: number } {
  const { stdoutDroppedBytes, stderrDroppedBytes, omitted } = result;
  return {
    stdout: stdoutDroppedBytes + (omitted?.stdoutBytes ?? 0),
    stderr: stderrDroppedBytes + (omitted?.stderrBytes ?? 0),
  };
}
