/**
 * Schemas of a daemon's responses. It runs inside the sandbox, next to untrusted code, so its responses are parsed like
 * all input from outside.
 */

import {
  DAEMON_ERROR_CODES,
  type ErrorCode,
  type ErrorDetails,
  errorBodySchema,
  execInfoSchema,
  grepReplySchema,
  isErrorCode,
  listeningPortSchema,
  processInfoSchema,
  SandlotError,
  type SentError,
  sessionInfoSchema,
  terminalInfoSchema,
} from "@sandlot/contract";
import { z } from "zod";
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
