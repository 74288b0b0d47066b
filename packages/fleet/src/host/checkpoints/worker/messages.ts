/**
 * The messages between a fleet and its workers. A worker reads what sandboxes have written, so every message from it is
 * parsed with its schema before it is used.
 */

import { checkpointChangeSchema, checkpointSchema, isErrorCode, SandlotError } from "@sandlot/contract";
import { z } from "zod";
import type { WorkspaceSpot } from "../../../backend/backend.ts";
import type { Budget, RestoreTarget, SeedSource, WorkspaceOwner } from "../../../backend/checkpoints.ts";
import type { Account } from "../../workspaces/tree.ts";
import type { CheckpointOptions } from "../options.ts";
import type { TakeRequest } from "../take/take.ts";

export interface WorkerSettings {
  /** The fleet's directory. */
  readonly root: string;
  readonly account: Account;
  readonly isPassable: boolean;
  readonly options: CheckpointOptions;
}

export interface DiffRange {
  readonly from: string | null;
  readonly to: string | null;
  readonly texts: boolean;
  readonly maxChanges: number;
  readonly paths: readonly string[] | null;
}

/** An archive is in a file of the fleet's own by then. */
export type StoredSource =
  | Exclude<SeedSource, { readonly kind: "archive" }>
  | { readonly kind: "archive"; readonly path: string };

export interface Jobs {
  take: [owner: WorkspaceOwner, request: TakeRequest];
  diff: [owner: WorkspaceOwner, range: DiffRange];
  check: [owner: WorkspaceOwner, target: RestoreTarget, budget: Budget | null];
  restore: [spot: WorkspaceSpot, target: RestoreTarget, budget: Budget | null];
  seed: [source: StoredSource, to: WorkspaceOwner, budget: Budget | null];
  remove: [owner: WorkspaceOwner, checkpoint: string];
  verify: [owner: WorkspaceOwner, checkpoint: string | null];
  export: [owner: WorkspaceOwner, checkpoint: string];
  collect: [];
}
export type JobName = keyof Jobs;

export type ToWorker =
  | { readonly settings: WorkerSettings }
  | { readonly job: JobName; readonly args: readonly unknown[] }
  /** The last piece was used. */
  | { readonly more: true };

const kindSchema = z.enum(["taken", "unchanged"]);
export const resultSchemas = {
  take: z.union([
    z.object({ kind: kindSchema, checkpoint: checkpointSchema }),
    z.object({ kind: z.literal("nothing") }),
  ]),
  diff: z.object({
    from: z.string().nullable(),
    to: z.string().nullable(),
    counts: z.object({ added: z.int(), changed: z.int(), removed: z.int() }),
    truncated: z.boolean(),
  }),
  check: z.null(),
  restore: z.object({ checkpoint: checkpointSchema, safety: checkpointSchema }),
  seed: z.object({
    fileCount: z.int(),
    sizeBytes: z.number(),
    skipped: z.array(z.string()).max(1_000),
    checkpoint: checkpointSchema,
  }),
  remove: z.null(),
  verify: z.object({
    checked: z.int(),
    damaged: z.array(z.object({ checkpoint: z.string(), path: z.string() })).max(1_000),
  }),
  export: z.null(),
  collect: z.null(),
} satisfies Record<JobName, z.ZodType>;

export const changesSchema = z.array(checkpointChangeSchema).max(100);

/** Pieces of a result come on their own, so that no message takes long to parse. */
export const fromWorkerSchema = z.union([
  z.object({ ready: z.literal(true) }),
  z.object({
    progress: z.object({
      phase: z.enum(["walking", "storing", "comparing", "applying", "reading"]),
      files: z.number(),
      bytes: z.number(),
      totalFiles: z.number().nullable(),
    }),
  }),
  z.object({ problem: z.string() }),
  z.object({ piece: z.custom<Uint8Array>((value) => value instanceof Uint8Array) }),
  z.object({ changes: z.unknown() }),
  z.object({ result: z.unknown() }),
  z.object({
    error: z.object({
      code: z.string().nullable(),
      details: z.record(z.string(), z.unknown()),
      message: z.string(),
    }),
  }),
]);
export type FromWorker = z.infer<typeof fromWorkerSchema>;

export function sendableError(error: unknown): Extract<FromWorker, { error: unknown }> {
  if (error instanceof SandlotError)
    return { error: { code: error.code, details: { ...error.details }, message: error.message } };
  return { error: { code: null, details: {}, message: error instanceof Error ? error.message : String(error) } };
}

export function receivedError({ error: { code, details, message } }: Extract<FromWorker, { error: unknown }>): Error {
  if (code === null || !isErrorCode(code)) return new Error(message);
  return new SandlotError(code, details as never);
}
