/**
 * What a daemon may answer. It runs inside the sandbox, next to code that nobody trusts, so its answers are parsed like
 * everything that comes from outside.
 */

import { type ErrorCode, type ErrorDetails, errorBodySchema, execResultSchema, SandlotError } from "@sandlot/contract";
import { z } from "zod";

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

export const execsSchema = z.array(
  z.object({
    execId: z.string(),
    command: z.union([z.string(), z.array(z.string())]),
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

export const sessionExecResultSchema = execResultSchema.extend({ cwd: z.string(), shellEnded: z.boolean() });

export const terminalInfoSchema = z.object({
  terminalId: z.string(),
  command: z.array(z.string()),
  columns: z.int(),
  rows: z.int(),
  createdAt: z.number(),
  attachedCount: z.int(),
});

export const terminalsSchema = z.array(terminalInfoSchema);

export const terminalNoticeSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("position"), offset: z.int(), droppedBytes: z.int() }),
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
  const parsed = errorBodySchema.safeParse(tryJson(body));
  if (!parsed.success)
    return new SandlotError("internal", { problem: `the daemon answered ${status} without an error` });
  const { code, details } = parsed.data.error;
  return new SandlotError(code, details as unknown as ErrorDetails[ErrorCode]);
}

/** The error in an answer that has no status; `null` when there is none. */
export function thrownError(body: Buffer): SandlotError | null {
  const content = tryJson(body);
  return typeof content === "object" && content !== null && "error" in content ? errorOf(0, body) : null;
}

export function parseReply<T>(schema: z.ZodType<T>, body: Buffer): T {
  const parsed = schema.safeParse(tryJson(body));
  if (parsed.success) return parsed.data;
  throw new SandlotError("internal", { problem: "the daemon sent an answer that it should not" });
}

function tryJson(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    return undefined;
  }
}
