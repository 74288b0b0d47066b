/**
 * Results of calls on checkpoints.
 *
 * A checkpoint is a copy of a thread's workspace and home as they were at one time. Paths are relative to the
 * workspace's root. Bytes of a name that are no UTF-8 appear as U+FFFD; the checkpoint keeps the name as it is.
 */

import { z } from "zod";
import { type Immutable, openEnum } from "../open-enum.ts";

/** A few of the paths that something is true of, and the number of all of them. */
export const pathSampleSchema = z
  .object({ count: z.int().nonnegative(), paths: z.array(z.string()).describe("The first ones, at most 100.") })
  .meta({ id: "PathSample" });

export type PathSample = Immutable<z.infer<typeof pathSampleSchema>>;

export const checkpointSchema = z
  .object({
    id: z.string().describe("Unique within its thread."),
    parent: z.string().nullable().describe("The checkpoint before it in the thread's history."),
    label: z
      .string()
      .nullable()
      .describe("A name given by the caller. A labelled checkpoint is kept until it is removed."),
    cause: openEnum(["automatic", "requested", "before-restore", "restored", "forked", "seeded"]),
    takenAt: z.number().describe("Milliseconds since 1970."),
    generation: z.number().nullable().describe("The generation of the sandbox that had used the files last."),
    environment: z.string().nullable().describe("The environment of that sandbox, `name@hash`."),
    fileCount: z.int().nonnegative(),
    sizeBytes: z.number().nonnegative().describe("Of all files in it."),
    addedBytes: z.number().nonnegative().describe("What the store grew by."),
    torn: pathSampleSchema.describe("Files that changed each time they were read: their content is a mixture."),
    leftOut: pathSampleSchema.describe("Sockets, pipes, devices and unreadable files. Caches are not counted."),
    restoredFrom: z.string().nullable().describe("The checkpoint that a restore, undo or redo has brought back."),
    isHead: z.boolean().describe("Whether it is the newest of the thread's present history."),
  })
  .meta({ id: "Checkpoint" });

export type Checkpoint = Immutable<z.infer<typeof checkpointSchema>>;

export const checkpointChangeSchema = z
  .object({
    path: z.string(),
    change: openEnum(["added", "changed", "removed", "mode", "kind"]),
    kind: openEnum(["file", "directory", "symlink"]).describe(
      "On the newer side; of the older one where it was removed.",
    ),
    before: z.object({ sizeBytes: z.number(), mode: z.int() }).nullable(),
    after: z.object({ sizeBytes: z.number(), mode: z.int() }).nullable(),
    isTorn: z.boolean().describe("One of the sides is a mixture, because the file changed while it was read."),
    diff: z
      .string()
      .nullable()
      .describe("A unified diff of two texts of at most 1 MiB; null where it was not asked for or is none."),
  })
  .meta({ id: "CheckpointChange" });

export type CheckpointChange = Immutable<z.infer<typeof checkpointChangeSchema>>;

export const checkpointDiffSchema = z
  .object({
    from: z.string().nullable().describe("null: nothing, an empty workspace."),
    to: z.string().nullable().describe("null: the present."),
    changes: z.array(checkpointChangeSchema),
    counts: z.object({
      added: z.int().nonnegative(),
      changed: z.int().nonnegative(),
      removed: z.int().nonnegative(),
    }),
    truncated: z.boolean().describe("There are more changes than `changes` holds; `counts` has all of them."),
  })
  .meta({ id: "CheckpointDiff" });

export type CheckpointDiff = Immutable<z.infer<typeof checkpointDiffSchema>>;
