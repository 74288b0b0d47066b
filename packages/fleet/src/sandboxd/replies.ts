/**
 * What a daemon may answer. It runs inside the sandbox, next to code that nobody trusts, so its answers are parsed like
 * everything that comes from outside.
 */

import {
  DAEMON_ERROR_CODES,
  type ErrorCode,
  type ErrorDetails,
  errorBodySchema,
  execResultSchema,
  isErrorCode,
  SandlotError,
} from "@sandlot/contract";
import { z } from "zod";
import { checked, readJson, readShortJson } from "../untrusted/json.ts";

export const fileStatSchema = z.object({
  path: z.string(),
  kind: z.enum(["file", "directory", "symlink", "other"]),
  sizeBytes: z.number(),
  mode: z.int(),
  modifiedAt: z.number(),
  version: z.string(),
});

export const fileChangeSchema = z.object({
  type: z.enum(["ready", "created", "modified", "removed", "overflow"]),
  path: z.string(),
});

export const fileListingSchema = z.object({ entries: z.array(fileStatSchema), truncated: z.boolean() });

export const globResultSchema = z.object({ paths: z.array(z.string()), truncated: z.boolean() });

export const grepResultSchema = z.object({
  matches: z.array(z.object({ path: z.string(), lineNumber: z.int(), line: z.string() })),
  truncated: z.boolean(),
  // A sandbox may outlive the fleet that made it, and its daemon not count these yet.
  skippedFiles: z.int().default(0),
  skippedLines: z.int().default(0),
});

export const nothingSchema = z.object({});

export const spawnedExecSchema = z.object({ execId: z.string(), pid: z.int().nullable() });

export const foundSchema = z.object({ found: z.boolean() });

/** In one look: a schema of a list explains each of its wrong entries. */
function isCommand(value: unknown): boolean {
  return typeof value === "string" || (Array.isArray(value) && value.every((part) => typeof part === "string"));
}

export const execsSchema = z.array(
  z.object({
    execId: z.string(),
    command: z.custom<string | readonly string[]>(isCommand),
    status: z.enum(["running", "completed", "timed_out", "killed", "lost"]),
    exitCode: z.int().nullable(),
    pid: z.int().nullable(),
    startedAt: z.number(),
    stdoutBytes: z.int(),
    stderrBytes: z.int(),
    output: z.enum(["ring", "hold"]).exactOptional(),
  }),
);

export const sessionInfoSchema = z.object({
  sessionId: z.string(),
  cwd: z.string(),
  createdAt: z.number(),
  busy: z.boolean(),
});

export const sessionsSchema = z.array(sessionInfoSchema);

/** What the result of a session's command says beside the rest. */
export const sessionStateSchema = z.object({ cwd: z.string(), shellEnded: z.boolean() });

export const terminalInfoSchema = z.object({
  terminalId: z.string(),
  command: z.custom<readonly string[]>((value) => typeof value !== "string" && isCommand(value)),
  columns: z.int(),
  rows: z.int(),
  createdAt: z.number(),
  attachedCount: z.int(),
});

export const terminalsSchema = z.array(terminalInfoSchema);

export const terminalNoticeSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("position"), offset: z.int().nonnegative(), droppedBytes: z.int().nonnegative() }),
  z.object({ type: z.literal("exit"), exitCode: z.int().nullable(), signal: z.string().nullable() }),
]);

export const waitForOutputReplySchema = z.union([
  z.object({ matched: z.literal(true), stream: z.enum(["stdout", "stderr"]), line: z.string() }),
  z.object({ matched: z.literal(false) }),
]);

export const followEndSchema = execResultSchema
  .pick({ execId: true, status: true, exitCode: true, signal: true, durationMs: true })
  .extend({ stdoutBytes: z.int(), stderrBytes: z.int() });

export const holdGreetingSchema = z.object({ pid: z.int(), generation: z.int(), run: z.string() });

export const renewReplySchema = z.object({ run: z.string() });

export const readyLineSchema = z.object({
  ready: z.literal(true),
  pid: z.int(),
  sandboxId: z.string(),
  generation: z.int(),
  port: z.int().nullable(),
});

export const activitySchema = z.object({
  runningExecs: z.int(),
  openTerminals: z.int(),
  previewTrafficAt: z.number().nullable(),
  cpuShare: z.number(),
  lastActivityAt: z.number(),
  heldCount: z.int(),
});

export const processesSchema = z.array(
  z.object({
    pid: z.int(),
    parentPid: z.int(),
    command: z.string(),
    state: z.string(),
    residentBytes: z.number(),
    cpuMs: z.number(),
    execId: z.string().nullable(),
  }),
);

export const portsSchema = z.array(z.object({ port: z.int(), address: z.string(), pid: z.int().nullable() }));

export const usageSchema = z.object({
  memoryBytes: z.number().nullable(),
  memoryMaxBytes: z.number().nullable(),
  processCount: z.number().nullable(),
  processMax: z.number().nullable(),
  cpuMs: z.number().nullable(),
});

/** The error that a daemon has sent. Its sentence is made here, from the code and the facts. */
export function errorOf(status: number, body: Buffer): SandlotError {
  const parsed = errorBodySchema.safeParse(readShortJson(body));
  const { code, details } = parsed.success ? parsed.data.error : { code: "", details: {} };
  const error = isErrorCode(code) ? errorWith(code, details) : null;
  return error ?? badResponse(`its daemon answered ${status} without an error`);
}

/** The error in an answer that has no status; `null` when there is none. */
export function thrownError(body: Buffer): SandlotError | null {
  const content = readShortJson(body);
  return typeof content === "object" && content !== null && "error" in content ? errorOf(0, body) : null;
}

/** An answer, by its schema. */
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

/** A text in an error of a daemon: a path with something to spare. */
const FACT_MAX_CHARS = 8_192;
/** A caller who is told to wait for longer would not come again. */
const RETRY_AFTER_MAX_MS = 60_000;

/** `null` for a code that is not a daemon's to send, and for facts that its sentence cannot be made from. */
function errorWith(code: ErrorCode, given: Readonly<Record<string, unknown>>): SandlotError | null {
  if (!DAEMON_ERROR_CODES.has(code)) return null;
  const details: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(given)) {
    if (typeof value === "string") details[name] = value.slice(0, FACT_MAX_CHARS);
    else if (value === null || typeof value === "number" || typeof value === "boolean") details[name] = value;
  }
  if ("retryAfterMs" in details) {
    const { retryAfterMs } = details;
    if (typeof retryAfterMs !== "number" || !(retryAfterMs >= 0)) return null;
    details.retryAfterMs = Math.min(retryAfterMs, RETRY_AFTER_MAX_MS);
  }
  try {
    return new SandlotError(code, details as unknown as ErrorDetails[ErrorCode]);
  } catch {
    return null;
  }
}
