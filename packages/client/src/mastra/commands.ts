/** Commands of a Mastra workspace: run to their end, with live output on request, in Mastra's own shape. */

import type { CommandResult, ExecuteCommandOptions } from "@mastra/core/workspace";
import { DEFAULT_CWD, type ExecResult, SANDBOX_LIMITS, type Sandbox } from "@sandlot/contract";
import { exitCodeOf } from "../tools/exit-code.ts";
import { missingOutput } from "../tools/missing-output.ts";
import { absolutePath } from "../tools/paths.ts";

export type Line = string | readonly string[];

export async function execute(
  sandbox: Sandbox,
  line: Line,
  options: ExecuteCommandOptions,
  signal: AbortSignal | undefined,
) {
  const execOptions = {
    cwd: absolutePath(options.cwd ?? DEFAULT_CWD),
    env: presentValues(options.env ?? {}),
    ...(options.timeout === undefined ? {} : { timeoutMs: options.timeout }),
    ...(signal === undefined ? {} : { signal }),
    ...(options.onStdout === undefined ? {} : { onStdout: options.onStdout }),
    ...(options.onStderr === undefined ? {} : { onStderr: options.onStderr }),
    outputMaxBytes: SANDBOX_LIMITS.execOutputMaxBytes,
  };
  return sandbox.exec(line, execOptions);
}

export function commandResult(result: ExecResult, maxRetainedBytes?: number): CommandResult {
  const { status, exitCode, durationMs } = result;
  const missing = missingOutput(result);
  const stdout = retained(result.stdout, missing.stdout, maxRetainedBytes);
  const stderr = retained(result.stderr, missing.stderr, maxRetainedBytes);
  return {
    success: status === "completed" && exitCode === 0,
    exitCode: exitCodeOf(result),
    stdout: stdout.text,
    stderr: stderr.text,
    executionTimeMs: durationMs,
    timedOut: status === "timed_out",
    killed: status === "killed" || status === "lost",
    stdoutTruncated: stdout.droppedBytes > 0,
    stderrTruncated: stderr.droppedBytes > 0,
    stdoutDroppedBytes: stdout.droppedBytes,
    stderrDroppedBytes: stderr.droppedBytes,
  };
}

/** The end of an output, up to the limit, without half a character at its beginning. */
function retained(text: string, droppedBytes: number, maxBytes = Number.POSITIVE_INFINITY) {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= maxBytes) return { text, droppedBytes };
  let from = bytes.length - maxBytes;
  while (from < bytes.length && ((bytes[from] ?? 0) & 0xc0) === 0x80) from += 1;
  return { text: new TextDecoder().decode(bytes.subarray(from)), droppedBytes: droppedBytes + from };
}

export function presentValues(environment: Readonly<Record<string, string | undefined>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(environment).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
}
