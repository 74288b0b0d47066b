/**
 * Schemas of the process boundary. Input from outside is parsed with these; output has their shape. The OpenAPI
 * document and the typed client are made from them.
 *
 * Requests are strict: an unknown field is refused. Responses are read loosely: an unknown field is dropped, an unknown
 * word is passed on (`docs/versioning.md`).
 */

import { z } from "zod";
import { THREAD_ID_PATTERN, USER_ID_PATTERN } from "./ids.ts";
import { type Immutable, openEnum } from "./open-enum.ts";

export const threadIdSchema = z
  .string()
  .regex(THREAD_ID_PATTERN)
  .describe("One conversation: 1 to 64 letters, digits, underscores or hyphens.");

export const userIdSchema = z
  .string()
  .regex(USER_ID_PATTERN)
  .describe("Whom data and limits belong to: 1 to 128 letters, digits, underscores or hyphens.");

export const recoveredCheckpointSchema = z
  .object({
    id: z.string(),
    label: z.string().nullable(),
    takenAt: z.number().describe("Milliseconds since 1970."),
    differs: z
      .boolean()
      .nullable()
      .describe("Whether files have changed since; null: comparing them took too long for an acquire to wait."),
  })
  .meta({ id: "RecoveredCheckpoint" });

export type RecoveredCheckpoint = Immutable<z.infer<typeof recoveredCheckpointSchema>>;

export const recoverySchema = z
  .object({
    kind: openEnum(["same", "restored", "empty"]).describe(
      "same sandbox as before; a new one with the old workspace; or a new one with an empty workspace",
    ),
    lost: z.array(z.string()),
    survived: z.array(z.string()),
    checkpoint: recoveredCheckpointSchema
      .optional()
      .describe("The newest checkpoint, where the sandbox is a new one and the thread has any."),
  })
  .meta({ id: "Recovery" });

/** What happened to a thread's state between its last use and this lease. */
export type Recovery = Immutable<z.infer<typeof recoverySchema>>;

/** The recovery of a new sandbox with the kept workspace and the home in it. */
export const RESTORED: Recovery = {
  kind: "restored",
  lost: ["processes", "temporary files"],
  survived: ["installed packages", "workspace"],
};

/** The same where the home is temporary. */
export const RESTORED_WITHOUT_HOME: Recovery = {
  kind: "restored",
  lost: ["processes", "temporary files", "installed packages"],
  survived: ["workspace"],
};

export const SANDBOX_STATES = ["creating", "leased", "parked", "blank", "stopping"] as const;
/** The state of a sandbox for people, in the words of this version. */
export type SandboxState = (typeof SANDBOX_STATES)[number];

export const sandboxSummarySchema = z
  .object({
    sandboxId: z.string(),
    user: z.string().nullable(),
    thread: z.string().nullable(),
    state: openEnum(SANDBOX_STATES),
    generation: z.int(),
    blueprint: z.string(),
    backend: z.string(),
    engine: z.string().optional().describe("the engine that has it, if it is known"),
    holders: z.array(z.string()).describe("instances that hold it, and remote leases"),
    createdAt: z.number(),
    parkedAt: z.number().nullable(),
  })
  .meta({ id: "SandboxSummary" });

/** One line of `fleet.list()`. */
export type SandboxSummary = Immutable<z.infer<typeof sandboxSummarySchema>>;

export const threadSummarySchema = z
  .object({
    user: z.string(),
    thread: z.string(),
    sandbox: sandboxSummarySchema.nullable().describe("null: its files are kept, and the next use makes a sandbox"),
  })
  .meta({ id: "ThreadSummary" });

/** One line of `fleet.listThreads()`. */
export type ThreadSummary = Immutable<z.infer<typeof threadSummarySchema>>;

/** Loose on purpose: a client of this version reads the errors of a later one, and DeerFlow's routes add `detail`. */
export const errorBodySchema = z
  .looseObject({
    error: z.looseObject({
      code: z.string().describe("One of the codes of docs/errors.md; a later version may have more."),
      message: z.string(),
      retryable: z.boolean(),
      details: z.record(z.string(), z.unknown()),
      remedy: z.string().optional().describe("What to do about it."),
      requestId: z.string().optional(),
    }),
  })
  .meta({ id: "Error" });
