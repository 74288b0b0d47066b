/**
 * The result of a command, as a daemon sends it: a JSON line and the bytes of both streams. A daemon of an earlier
 * release sends JSON alone.
 *
 * Invariant: a result has at most the requested size, and parsing it never blocks this process, for any bytes that the
 * daemon sends.
 */

import {
  type ExecResult,
  execResultSchema,
  type OutputSoFar,
  outputLineSchema,
  resultLineSchema,
  SANDBOX_LIMITS,
} from "@sandlot/contract";
import { omittedRemedy } from "@sandlot/contract/live-exec";
import type { z } from "zod";
import { outputPart } from "../backend/output-so-far.ts";
import { badResponse, parseReply, parseShort } from "./replies.ts";

/** The limit of the line, with room for an execId and a working directory. */
const LINE_MAX_BYTES = 64 * 1024;
/** The limit of a response that is JSON alone. */
const JSON_MAX_BYTES = 16 * 1024 * 1024;
const JSON_MAX_VALUES = 64;
const NEWLINE = 0x0a;

/** How much of each stream a call requests. */
export function outputLimit({ outputMaxBytes }: { readonly outputMaxBytes?: number }): number {
  return outputMaxBytes ?? SANDBOX_LIMITS.execResultMaxBytes;
}

/** A valid response to such a call is never longer. */
export function resultMaxBytes(outputMaxBytes: number): number {
  return Math.max(JSON_MAX_BYTES, LINE_MAX_BYTES + 2 * outputMaxBytes);
}

/** `also` are the fields that this kind of call has beside those of every result. */
export async function parseResult<Also extends object>(
  body: Buffer,
  also: z.ZodType<Also>,
  remedy?: string,
): Promise<Also & ExecResult> {
  const end = body.subarray(0, LINE_MAX_BYTES).indexOf(NEWLINE);
  if (end < 0) return parseJson(body, also);
  const line = body.subarray(0, end);
  const head = parseShort(resultLineSchema, line);
  const { stdoutBytes, stderrBytes, stdoutOmittedBytes, stderrOmittedBytes, ...outcome } = head;
  const from = end + 1;
  if (body.length !== from + stdoutBytes + stderrBytes) throw badResponse("its daemon sent a broken result");
  const start = { stdout: head.stdoutDroppedBytes, stderr: head.stderrDroppedBytes };
  const omitted = {
    stdoutBytes: stdoutOmittedBytes,
    stderrBytes: stderrOmittedBytes,
    remedy: remedy ?? omittedRemedy(head.execId, start),
  };
  const result: ExecResult = {
    ...outcome,
    stdout: body.toString("utf8", from, from + stdoutBytes),
    stderr: body.toString("utf8", from + stdoutBytes),
    ...(stdoutOmittedBytes + stderrOmittedBytes > 0 ? { omitted } : {}),
  };
  return { ...parseShort(also, line), ...result };
}

async function parseJson<Also extends object>(body: Buffer, also: z.ZodType<Also>): Promise<Also & ExecResult> {
  const result: ExecResult = await parseReply(execResultSchema, body, JSON_MAX_VALUES);
  return { ...(await parseReply(also, body, JSON_MAX_VALUES)), ...result };
}

/** The output of a session's command until now. */
export function parseOutput(body: Buffer, asked: { readonly stdout: number; readonly stderr: number }): OutputSoFar {
  const end = body.subarray(0, LINE_MAX_BYTES).indexOf(NEWLINE);
  const line = parseShort(outputLineSchema, body.subarray(0, Math.max(0, end)));
  const { execId, status, exitCode, stdoutBytes, stderrBytes } = line;
  const from = end + 1;
  if (body.length !== from + stdoutBytes + stderrBytes) throw badResponse("its daemon sent a broken output");
  const isOver = status !== "running";
  const at = (stream: "stdout" | "stderr") => ({
    asked: asked[stream],
    offset: line[`${stream}Offset`],
    totalBytes: line[`${stream}TotalBytes`],
    isOver,
  });
  return {
    ...{ execId, status, exitCode },
    stdout: outputPart(body.subarray(from, from + stdoutBytes), at("stdout")),
    stderr: outputPart(body.subarray(from + stdoutBytes), at("stderr")),
  };
}
