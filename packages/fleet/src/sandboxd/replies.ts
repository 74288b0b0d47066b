/**
 * A daemon's responses: their schemas, the errors that they carry, and the results of commands. The daemon runs inside the
 * sandbox, next to untrusted code, so its responses are parsed like all input from outside.
 *
 * A result is a JSON line and the bytes of both streams; a daemon of an earlier release sends JSON alone.
 *
 * Invariant: a result has at most the requested size, and parsing it never blocks this process, for any bytes that the
 * daemon sends.
 */

import {
  DAEMON_ERROR_CODES,
  type ErrorCode,
  type ErrorDetails,
  type ExecResult,
  errorBodySchema,
  execInfoSchema,
  execResultSchema,
  type FollowEnd,
  grepReplySchema,
  isErrorCode,
  listeningPortSchema,
  type OutputSoFar,
  outputLineSchema,
  processInfoSchema,
  resultLineSchema,
  SANDBOX_LIMITS,
  SandlotError,
  type SentError,
  sessionInfoSchema,
  terminalInfoSchema,
} from "@sandlot/contract";
import { omittedRemedy } from "@sandlot/contract/live-exec";
import { z } from "zod";
import { outputPart } from "../backend/output-so-far.ts";
import { checked, readJson, readShortJson } from "../untrusted/json.ts";

/** One check for all: a list schema reports each wrong entry, and a daemon may send many. */
function isCommand(value: unknown): boolean {
  return typeof value === "string" || (Array.isArray(value) && value.every((part) => typeof part === "string"));
}

export const nothingSchema = z.object({});

export const grepResultSchema = grepReplySchema.extend({
  // A sandbox may outlive the fleet that made it, and an older daemon does not count these.
  skippedFiles: z.int().min(0).default(0),
  skippedLines: z.int().min(0).default(0),
});

export const execsSchema = z.array(execInfoSchema.extend({ command: z.custom<string | readonly string[]>(isCommand) }));

export const sessionsSchema = z.array(sessionInfoSchema);

export const terminalSchema = terminalInfoSchema.extend({
  command: z.custom<readonly string[]>((value) => typeof value !== "string" && isCommand(value)),
});

export const terminalsSchema = z.array(terminalSchema);

export const processesSchema = z.array(processInfoSchema);

export const portsSchema = z.array(listeningPortSchema);

/** The error that a daemon has sent. For a known code, the message is built here, from the details. */
export function errorOf(status: number, body: Buffer): SandlotError {
  const parsed = errorBodySchema.safeParse(readShortJson(body));
  if (!parsed.success) return badResponse(`its daemon answered ${status} without an error`);
  const { code, message, retryable, details } = parsed.data.error;
  const facts = factsOf(details);
  if (facts === null) return badResponse(`its daemon answered ${status} without an error`);
  if (!isErrorCode(code)) return laterError(status, { code, message, retryable, details: facts });
  return errorWith(code, facts) ?? badResponse(`its daemon answered ${status} without an error`);
}

/** The error in a response without a status; `null` when there is none. */
export function thrownError(body: Buffer): SandlotError | null {
  const content = readShortJson(body);
  return typeof content === "object" && content !== null && "error" in content ? errorOf(0, body) : null;
}

/** Parses a response by its schema. */
export async function parseReply<T>(schema: z.ZodType<T>, body: Buffer, maxValues: number): Promise<T> {
  const parsed = await checked(schema, await readJson(body, maxValues));
  if (parsed !== undefined) return parsed;
  throw badResponse("its daemon sent something else than what was asked for");
}

/** The same for a line or a frame. */
export function parseShort<T>(schema: z.ZodType<T>, body: Buffer): T {
  const parsed = schema.safeParse(readShortJson(body));
  if (parsed.success) return parsed.data;
  throw badResponse("its daemon sent something else than what was asked for");
}

export function badResponse(problem: string): SandlotError {
  return new SandlotError("bad_sandbox_response", { problem });
}

/** The limit of a text in a daemon's error: a path with room to spare. */
const FACT_MAX_CHARS = 8_192;
/** A longer delay would keep callers from retrying. */
const RETRY_AFTER_MAX_MS = 60_000;
const CODE_PATTERN = /^[a-z][a-z0-9_]{0,63}$/;
const MESSAGE_MAX_CHARS = 1_024;
/** The fact by which the fleet names a command that mends something: people type what it says. */
const COMMAND_FACT = "fix";
/** What a daemon may say about a request. That a key is missing or refused is the gateway's to say. */
const LATER_STATUSES: ReadonlySet<number> = new Set([
  400, 404, 409, 410, 412, 413, 415, 416, 422, 429, 500, 501, 503, 504, 507,
]);

/** `null` where a delay for callers is not a number. */
function factsOf(given: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> | null {
  const details: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(given)) {
    if (name === COMMAND_FACT) continue;
    if (typeof value === "string") details[name] = value.slice(0, FACT_MAX_CHARS);
    else if (value === null || typeof value === "number" || typeof value === "boolean") details[name] = value;
  }
  if ("retryAfterMs" in details) {
    const { retryAfterMs } = details;
    if (typeof retryAfterMs !== "number" || !(retryAfterMs >= 0)) return null;
    details.retryAfterMs = Math.min(retryAfterMs, RETRY_AFTER_MAX_MS);
  }
  return details;
}

/** An error of a later version: keeps its code, its message and its details, within limits. */
function laterError(status: number, sent: SentError): SandlotError {
  if (!CODE_PATTERN.test(sent.code)) return badResponse(`its daemon answered ${status} without an error`);
  const message = sent.message.slice(0, MESSAGE_MAX_CHARS);
  return SandlotError.received({ ...sent, message }, LATER_STATUSES.has(status) ? status : 502);
}

/** `null` for a code that a daemon must not send, and for details that do not fit its message. */
function errorWith(code: ErrorCode, details: Readonly<Record<string, unknown>>): SandlotError | null {
  if (!DAEMON_ERROR_CODES.has(code)) return null;
  try {
    return new SandlotError(code, details as unknown as ErrorDetails[ErrorCode]);
  } catch {
    return null;
  }
}

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

/** The outcome of a command whose daemon died and was started again: it is over. */
const LOST = { status: "lost", exitCode: null, signal: null } as const;

export function lostResult(execId: string, durationMs: number): ExecResult {
  const streams = { stdout: "", stderr: "", stdoutDroppedBytes: 0, stderrDroppedBytes: 0 };
  return { execId, ...LOST, ...streams, durationMs };
}

/** With how much of its output has arrived. */
export function lostEnd(
  execId: string,
  { stdout, stderr }: { readonly stdout: number; readonly stderr: number },
  durationMs: number,
): FollowEnd {
  return { execId, ...LOST, stdoutBytes: stdout, stderrBytes: stderr, durationMs };
}
