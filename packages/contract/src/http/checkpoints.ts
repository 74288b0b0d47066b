/** The routes of checkpoints. */

import { z } from "zod";
import { checkpointSchema } from "../results/checkpoints.ts";
import { threadIdSchema } from "../schemas.ts";

/** An id, an unambiguous beginning of it, or a label. */
const checkpointName = z.string().min(1).max(200);
const paths = z
  .array(z.string().min(1).max(4_096))
  .min(1)
  .max(1_000)
  .describe("Only these, relative to the workspace's root, such as `workspace/report.md`.");
const timeoutMs = z.int().min(1).max(86_400_000).describe("Time limit; default `checkpoints.timeoutMs`.");
const REQUEST_ID = /^[A-Za-z0-9_-]{1,64}$/;
const requestId = z
  .string()
  .regex(REQUEST_ID)
  .describe("The same again finds the result of the first, and names its events of progress.");

const progressId = z.string().regex(REQUEST_ID).describe("Names the `checkpoint-progress` events of this call.");

export const checkpointParamsSchema = z.strictObject({ thread: threadIdSchema, checkpoint: checkpointName });

export const checkpointListSchema = z
  .object({ checkpoints: z.array(checkpointSchema).describe("The newest first.") })
  .meta({ id: "CheckpointList" });

export const checkpointRequestSchema = z
  .strictObject({
    label: z.string().min(1).max(200).optional().describe("A labelled one is kept until it is removed."),
    quiesce: z.boolean().optional().describe("Freezes the sandbox meanwhile, where the backend can."),
    verify: z.boolean().optional().describe("Reads every file again."),
    requestId: progressId.optional(),
    timeoutMs: timeoutMs.optional(),
  })
  .meta({ id: "CheckpointRequest" });

export const takenCheckpointSchema = z
  .object({
    checkpoint: checkpointSchema,
    isNew: z.boolean().describe("False: nothing had changed, and this is the newest one."),
  })
  .meta({ id: "TakenCheckpoint" });

export const diffRequestSchema = z
  .strictObject({
    from: checkpointName
      .nullable()
      .optional()
      .describe(
        "Absent: the newest state that differs from the present, which an undo goes back to; null: an empty workspace.",
      ),
    to: checkpointName.optional().describe("Absent: now."),
    texts: z.boolean().optional().describe("With the text diffs of files up to 1 MiB."),
    paths: paths.optional(),
    maxChanges: z.int().min(1).max(10_000).optional(),
    requestId: progressId.optional(),
    timeoutMs: timeoutMs.optional(),
  })
  .meta({ id: "DiffRequest" });

export const undoRequestSchema = z
  .strictObject({
    force: z.boolean().optional().describe("Also while it is in use: its leases are lost."),
    requestId: requestId.optional(),
    timeoutMs: timeoutMs.optional(),
  })
  .meta({ id: "UndoRequest" });

export const restoreRequestSchema = z
  .strictObject({ ...undoRequestSchema.shape, checkpoint: checkpointName, paths: paths.optional() })
  .meta({ id: "RestoreRequest" });

export const restoredCheckpointSchema = z
  .object({
    checkpoint: checkpointSchema.describe("The present."),
    safety: checkpointSchema.describe("What the present was before."),
  })
  .meta({ id: "RestoredCheckpoint" });

export const verifyRequestSchema = z
  .strictObject({
    checkpoint: checkpointName.optional().describe("Absent: all of them."),
    requestId: progressId.optional(),
    timeoutMs: timeoutMs.optional(),
  })
  .meta({ id: "VerifyRequest" });

export const verifiedCheckpointsSchema = z
  .object({
    checked: z.int().nonnegative(),
    damaged: z.array(z.object({ checkpoint: z.string(), path: z.string() })),
  })
  .meta({ id: "VerifiedCheckpoints" });

export const seededThreadSchema = z
  .object({
    thread: z.string(),
    fileCount: z.int().nonnegative(),
    sizeBytes: z.number().nonnegative(),
    skipped: z.array(z.string()).describe("What the archive has and a workspace cannot have."),
  })
  .meta({ id: "SeededThread" });

export type TakenCheckpointReply = z.infer<typeof takenCheckpointSchema>;
export type RestoredCheckpointReply = z.infer<typeof restoredCheckpointSchema>;
export type VerifiedCheckpointsReply = z.infer<typeof verifiedCheckpointsSchema>;
export type SeededThreadReply = z.infer<typeof seededThreadSchema>;
export type CheckpointRequest = z.input<typeof checkpointRequestSchema>;
export type DiffRequest = z.input<typeof diffRequestSchema>;
export type UndoRequest = z.input<typeof undoRequestSchema>;
export type RestoreRequest = z.input<typeof restoreRequestSchema>;
