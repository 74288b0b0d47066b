/** Commands on the wire: requests, and the events of an output stream. */

import { z } from "zod";
import { openEnum } from "../open-enum.ts";
import { OUTPUT_MIN_BYTES } from "../output-so-far.ts";
import { EXEC_OUTPUT_MODES, execInfoSchema, STREAM_NAMES } from "../results/exec.ts";
import { sessionInfoSchema } from "../results/sessions.ts";
import type { ExecOptionName, SpawnOptionName } from "../sandbox.ts";
import { ENV_NAME_PATTERN, EXEC_SIGNALS } from "../sandbox.ts";
import { SANDBOX_LIMITS } from "../sandbox-limits.ts";

/** The longest a timer can wait (24.8 days). */
const DURATION_MAX_MS = 2_147_483_647;
const NO_NUL = /^[^\0]*$/;

const text = (max: number) => z.string().max(max).regex(NO_NUL, "must not contain a NUL byte");
const environment = z.record(z.string().regex(ENV_NAME_PATTERN).max(256), text(131_072));

const argv = z.array(text(1_048_576)).min(1).max(4_096);

export const execIdSchema = z
  .string()
  .regex(/^[A-Za-z0-9_.-]{1,128}$/)
  .describe("Chosen by the caller: the same id with the same command is run once.");

/** The options of a command, as `sandbox.ts` lists them. */
const commandOptions = {
  execId: execIdSchema.optional(),
  cwd: text(4_096).optional().describe("Default `/mnt/user-data/workspace`."),
  env: environment.optional(),
  timeoutMs: z.int().min(0).max(DURATION_MAX_MS).optional().describe("0: no limit."),
  outputMaxBytes: z
    .int()
    .min(1)
    .max(SANDBOX_LIMITS.execOutputMaxBytes)
    .optional()
    .describe("How much of the end of each stream the answer holds, up to what the gateway allows (default 1 MiB)."),
  keepStdinOpen: z
    .boolean()
    .optional()
    .describe("For `…/stdin`. Default: true for a background command that was given no `stdin`."),
  output: z
    .enum(EXEC_OUTPUT_MODES)
    .optional()
    .describe(
      "`hold`: the command waits for its readers and loses no output; only with `background` or as events. " +
        "`ring` (default): it never waits, and the oldest output is dropped beyond 10 MiB of a stream.",
    ),
} satisfies Readonly<Record<ExecOptionName | SpawnOptionName, z.ZodType>>;

export const execRequestSchema = z
  .strictObject({
    ...commandOptions,
    command: z
      .union([text(1_048_576), argv])
      .optional()
      .describe("A text goes through a shell; a list is a program with its arguments, run as it is."),
    argv: argv.optional().describe("The same as a list in `command`."),
    stdin: z.string().optional().describe("UTF-8. Closed after it."),
    stdinBase64: z.base64().optional().describe("The same for any bytes."),
    background: z.boolean().optional().describe("Answer 202 at once; follow, feed and end it by its id."),
  })
  .refine((body) => (body.command === undefined) !== (body.argv === undefined), {
    message: "exactly one of `command` and `argv` must be given",
    path: ["command"],
  })
  .refine((body) => body.stdin === undefined || body.stdinBase64 === undefined, {
    message: "`stdin` and `stdinBase64` exclude each other",
    path: ["stdin"],
  })
  .meta({ id: "ExecRequest" });

export type ExecRequestBody = z.infer<typeof execRequestSchema>;

export const execListSchema = z.object({ execs: z.array(execInfoSchema) }).meta({ id: "ExecList" });

/** Data of the event `start`. */
export const execStartSchema = z.object({
  execId: z.string(),
  pid: z.int().nullable(),
  sandboxId: z.string(),
  generation: z.int(),
});

/** Data of the events `stdout` and `stderr`. */
export const execOutputSchema = z.object({
  stream: openEnum(STREAM_NAMES),
  offset: z.int().nonnegative(),
  base64: z.string(),
});

/** Data of the event `gap`: these bytes are no longer held. */
export const execGapSchema = z.object({
  stream: openEnum(STREAM_NAMES),
  fromOffset: z.int().nonnegative(),
  toOffset: z.int().nonnegative(),
});

/** Data of the event `resume`: ask `…/output` with these offsets. */
export const execResumeSchema = z.object({
  execId: z.string(),
  stdoutOffset: z.int().nonnegative(),
  stderrOffset: z.int().nonnegative(),
});

const offset = z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER);

export const execOutputQuerySchema = z.strictObject({
  stdoutOffset: offset.default(0),
  stderrOffset: offset.default(0),
  stream: z.enum(["stdout", "stderr"]).default("stdout").describe("Which one to send when raw bytes are asked for."),
  until: z.enum(["exit", "closed"]).default("exit"),
  hold: z
    .enum(["true", "false"])
    .default("true")
    .describe("`false`: only watches; a command that was started with `output: hold` does not wait for this reader."),
});

export const outputSoFarQuerySchema = z.strictObject({
  stdoutOffset: offset.default(0),
  stderrOffset: offset.default(0),
  maxBytes: z.coerce
    .number()
    .int()
    .min(OUTPUT_MIN_BYTES)
    .max(SANDBOX_LIMITS.execOutputMaxBytes)
    .optional()
    .describe("How much of each stream the answer holds, up to what the gateway allows (default 1 MiB)."),
});

export const signalRequestSchema = z.strictObject({ signal: z.enum(EXEC_SIGNALS) }).meta({ id: "SignalRequest" });
export const signalReplySchema = z.object({ delivered: z.boolean() }).meta({ id: "SignalReply" });

export const stdinRequestSchema = z
  .strictObject({
    data: z.string().optional().describe("UTF-8."),
    base64: z.base64().optional().describe("The same for any bytes."),
    end: z.boolean().optional().describe("Closes stdin after these bytes."),
  })
  .refine((body) => body.data === undefined || body.base64 === undefined, {
    message: "`data` and `base64` exclude each other",
    path: ["data"],
  })
  .meta({ id: "StdinRequest" });

export const waitForOutputRequestSchema = z
  .strictObject({
    pattern: text(4_096).min(1),
    literal: z.boolean().optional(),
    timeoutMs: z.int().min(1).max(600_000),
  })
  .meta({ id: "WaitForOutputRequest" });

export const sessionIdSchema = execIdSchema.describe("The id of a session, chosen by the caller or given.");

export const sessionRequestSchema = z
  .strictObject({ sessionId: sessionIdSchema.optional(), cwd: text(4_096).optional(), env: environment.optional() })
  .meta({ id: "SessionRequest" });

export const sessionListSchema = z.object({ sessions: z.array(sessionInfoSchema) }).meta({ id: "SessionList" });

export const sessionExecRequestSchema = z
  .strictObject({
    command: text(1_048_576),
    stdin: z.string().optional(),
    stdinBase64: z.base64().optional(),
    timeoutMs: z.int().min(0).max(DURATION_MAX_MS).optional(),
    outputMaxBytes: z.int().min(1).max(SANDBOX_LIMITS.execOutputMaxBytes).optional(),
  })
  .meta({ id: "SessionExecRequest" });
