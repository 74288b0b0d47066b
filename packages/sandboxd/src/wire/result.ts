/**
 * The result of a command on the wire: a JSON line, then the bytes of both streams. Output is sent as printed: as JSON
 * its reader would have to parse it, and control characters would take six times the space.
 */

import type { ServerResponse } from "node:http";
import type { ExecResult, OutputLine, ResultLine } from "@sandlot/contract";
import type { OutputTail } from "../exec/output-ring.ts";
import type { SessionOutput } from "../sessions/session.ts";

type Outcome = Pick<ExecResult, "execId" | "status" | "exitCode" | "signal" | "durationMs"> &
  Pick<ResultLine, "cwd" | "shellEnded">;

export function sendResult(response: ServerResponse, outcome: Outcome, stdout: OutputTail, stderr: OutputTail): void {
  const line: ResultLine = {
    ...outcome,
    stdoutBytes: stdout.bytes.length,
    stderrBytes: stderr.bytes.length,
    stdoutDroppedBytes: stdout.droppedBytes,
    stderrDroppedBytes: stderr.droppedBytes,
    stdoutOmittedBytes: stdout.omittedBytes,
    stderrOmittedBytes: stderr.omittedBytes,
  };
  sendLineAndBytes(response, line, [stdout.bytes, stderr.bytes]);
}

/** The output of a session's command so far. */
export function sendOutput(response: ServerResponse, { stdout, stderr, ...rest }: SessionOutput): void {
  const line: OutputLine = {
    ...rest,
    stdoutOffset: stdout.offset,
    stdoutBytes: stdout.bytes.length,
    stdoutTotalBytes: stdout.totalBytes,
    stderrOffset: stderr.offset,
    stderrBytes: stderr.bytes.length,
    stderrTotalBytes: stderr.totalBytes,
  };
  sendLineAndBytes(response, line, [stdout.bytes, stderr.bytes]);
}

function sendLineAndBytes(response: ServerResponse, line: object, parts: readonly Buffer[]): void {
  const body = Buffer.concat([Buffer.from(`${JSON.stringify(line)}\n`), ...parts]);
  response.writeHead(200, { "content-type": "application/octet-stream", "content-length": body.length });
  response.end(body);
}
