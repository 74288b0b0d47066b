/**
 * Records of checkpoints: one small file each, `c.<seq>.<id>`.
 *
 * Invariants
 * - A record gets its name when everything that it names is on the disk: that rename is the commit point.
 * - Numbers grow, and each new record's parent is the head of its time. So the head is the one with the highest number.
 */

import { hash } from "node:crypto";
import { constants, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Checkpoint, pathSampleSchema } from "@sandlot/contract";
import { z } from "zod";
import { unlessMissing } from "../../world/disk-trouble.ts";
import { CHECKPOINT_DEFAULTS } from "./options.ts";
import { calls, closing, syncDirectory, writeAll } from "./store/calls.ts";

const ID_PATTERN = /^[0-9a-f]{16}$/;
const NAME = /^c\.(\d{12})\.([0-9a-f]{16})$/;
const hex = z.string().regex(/^[0-9a-f]{64}$/);

const recordSchema = z.object({
  version: z.literal(1),
  id: z.string().regex(ID_PATTERN),
  seq: z.int().positive(),
  parent: z.string().nullable(),
  label: z.string().nullable(),
  cause: z.string(),
  takenAt: z.number(),
  generation: z.number().nullable(),
  environment: z.string().nullable(),
  tree: hex,
  links: hex.nullable(),
  /** A list of all paths that were left out or torn, as an object. */
  leftOutTable: hex.nullable(),
  /** Paths that it never keeps. */
  excluded: z.array(z.string()).default([...CHECKPOINT_DEFAULTS.excluded]),
  fileCount: z.int().nonnegative(),
  sizeBytes: z.number().nonnegative(),
  addedBytes: z.number().nonnegative(),
  torn: pathSampleSchema,
  leftOut: pathSampleSchema,
  restoredFrom: z.string().nullable(),
  /** What brought it back; undo and redo go their ways by it. */
  restoredAs: z.enum(["restore", "undo", "redo"]).nullable(),
  requestId: z.string().nullable(),
});

export type CheckpointRecord = z.infer<typeof recordSchema>;

/** The same request always gets the same id. */
export function idOfRequest(thread: string, purpose: string, requestId: string): string {
  return hash("sha256", `${purpose}\n${thread}\n${requestId}`).slice(0, 16);
}

export function recordName({ seq, id }: Pick<CheckpointRecord, "seq" | "id">): string {
  return `c.${String(seq).padStart(12, "0")}.${id}`;
}

/** Oldest first. A record that cannot be read is an error: on doubt nothing may be collected. */
export function readRecords(directory: string): CheckpointRecord[] {
  const names = (unlessMissing(() => readdirSync(directory)) ?? []).filter((name) => NAME.test(name)).sort();
  return names.flatMap((name) => {
    // Removed since the directory was read.
    const text = unlessMissing(() => readFileSync(join(directory, name), "utf8"));
    return text === undefined ? [] : [parseRecord(text, join(directory, name))];
  });
}

export function parseRecord(text: string, path: string): CheckpointRecord {
  try {
    return recordSchema.parse(JSON.parse(text));
  } catch (error) {
    throw new Error(`the record ${path} is damaged`, { cause: error });
  }
}

export function isRecordName(name: string): boolean {
  return NAME.test(name);
}

/** Writes a record under a draft's name, and waits for the disk. */
export function draftRecord(draft: string, record: CheckpointRecord): void {
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  closing(calls.open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600), (descriptor) => {
    writeAll(descriptor, Buffer.from(JSON.stringify(record)));
    calls.fsync(descriptor);
  });
}

/** Writes a record over its former version. */
export function replaceRecord(directory: string, draft: string, record: CheckpointRecord): void {
  draftRecord(draft, record);
  calls.rename(draft, join(directory, recordName(record)));
  syncDirectory(directory);
}

export function asCheckpoint(record: CheckpointRecord, head: CheckpointRecord | undefined): Checkpoint {
  const { id, parent, label, cause, takenAt, generation, environment, fileCount, sizeBytes, addedBytes } = record;
  const { torn, leftOut, restoredFrom } = record;
  const facts = { id, parent, label, cause, takenAt, generation, environment, fileCount, sizeBytes, addedBytes };
  return { ...facts, torn, leftOut, restoredFrom, isHead: head?.id === id };
}
