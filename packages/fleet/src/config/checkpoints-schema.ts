/** The key `checkpoints`: when checkpoints are taken by themselves, and what they may use. */

import { z } from "zod";
import { count, durationOverZero, size } from "../backend/config/amounts.ts";
import { DEFAULTS } from "./defaults.ts";

const { checkpoints } = DEFAULTS;

const leftOutPath = z
  .string()
  .regex(
    /^(?!\/)(?!.*(?:^|\/)\.{1,2}(?:\/|$))(?!.*\/\/)[^\0]+(?<!\/)$/,
    "must be a path below the workspace's root, such as `.home/.cache`",
  );

const leftOutPaths = z.array(leftOutPath).max(100, "at most 100 paths");

/** Of one blueprint. */
export const blueprintCheckpointsSchema = z
  .strictObject({
    automatic: z.boolean().optional().describe("Default: `checkpoints.automatic`."),
    leftOut: leftOutPaths
      .optional()
      .describe("In place of `checkpoints.leftOut`. A restore leaves what either side leaves out as it is."),
  })
  .describe("Checkpoints of threads of this blueprint, where they differ from those of others.");

export const checkpointsSchema = z
  .strictObject({
    automatic: z
      .boolean()
      .default(checkpoints.automatic)
      .describe("Whether the fleet takes checkpoints by itself, where the backend can. Asked-for ones always work."),
    quietMs: durationOverZero("every command would be followed by a checkpoint at once")
      .default(checkpoints.quietMs)
      .describe("How long after its last command a thread whose lease goes on gets one. Without a lease: at once."),
    timeoutMs: durationOverZero("no checkpoint is taken in no time")
      .default(checkpoints.timeoutMs)
      .describe("How long one checkpoint, diff or restore may take, unless its caller says otherwise."),
    concurrentMax: count
      .min(1, "must be at least 1: none would ever be taken")
      .default(checkpoints.concurrentMax)
      .describe("How many automatic checkpoints one process takes at the same time."),
    leftOut: leftOutPaths
      .default([...checkpoints.leftOut])
      .describe("Paths below the workspace's root that are never kept. A restore leaves them as they are."),
    perThreadMax: count
      .min(4, "must be at least 4: the newest three are never pushed out")
      .default(checkpoints.perThreadMax)
      .describe("Checkpoints of one thread. Beyond, the oldest one without a label goes."),
    perUserMax: count
      .min(4, "must be at least 4: the newest three are never pushed out")
      .default(checkpoints.perUserMax)
      .describe("Checkpoints of one user."),
    maxAgeDays: count
      .min(7, "must be at least 7: one of each of the last seven days is kept")
      .default(checkpoints.maxAgeDays)
      .describe("Older ones without a label go."),
    perThreadBytes: size
      .default(checkpoints.perThreadBytes)
      .describe("What the checkpoints of one thread may add to the store."),
    perUserBytes: size.default(checkpoints.perUserBytes).describe("What the store of one user may hold."),
    readBytes: size.default(checkpoints.readBytes).describe("What one checkpoint may read of changed files."),
    freeBytes: size.default(checkpoints.freeBytes).describe("What stays free on the disk."),
  })
  .prefault({})
  .describe("Checkpoints of workspaces and homes: for undo, diff, restore and fork.");
