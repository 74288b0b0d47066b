/**
 * The bodies of rows: JSON, parsed with a schema for each table. Another instance, a newer version or a person may have
 * written a row, so each is checked. Unknown fields stay: an older version that changes a row must not drop them.
 */

import { type InstanceId, type SandboxId, SandlotError } from "@sandlot/contract";
import { z } from "zod";
import type { SandboxRecord, Tombstone } from "../record.ts";
import type { Session } from "../store.ts";
import { recordKey, tableOf, tombstoneKey } from "./row-key.ts";
import type { RowKey } from "./row-server.ts";

/** Of `thread/…`. */
export interface ThreadBody {
  readonly sandboxId: SandboxId | null;
  readonly tombstone: Tombstone | null;
}

/** Of `session/…`. */
export interface SessionBody extends Omit<Session, "beat" | "lastBeatAt"> {
  /** A peer judged it dead, or it leaves: it has no rights any more, and its holds are being removed. */
  readonly ending: boolean;
}

/** Of `beat/…`. */
export interface BeatBody {
  readonly instance: InstanceId;
  readonly beat: number;
  readonly lastBeatAt: number;
}

/** Of `home/…`. */
export interface HomeBody {
  readonly user: string;
  readonly thread: string;
  readonly engine: string;
}

const id = z.string();
const count = z.int().min(0);
const credentials = z.looseObject({ generation: z.number(), token: z.string() });
const restore = z.looseObject({
  checkpoint: z.string(),
  paths: z.array(z.string()).optional(),
  requestId: z.string(),
  as: z.enum(["restore", "undo", "redo"]),
});
const nothing = z.record(z.string(), z.never());

const anyRecord = {
  sandboxId: id,
  user: id.nullable(),
  thread: id.nullable(),
  revision: z.number(),
  generation: z.number(),
  token: z.string(),
  backend: z.string(),
  engine: z.string(),
  blueprint: z.string(),
  blueprintHash: z.string(),
  place: z.string(),
  createdAt: z.number(),
};
const acting = { ...anyRecord, actor: id, holders: nothing, leases: nothing, parkedAt: z.null(), purge: z.boolean() };
const hold = z.looseObject({ generation: z.number(), seq: z.number(), since: z.number() });
const lease = z.looseObject({
  generation: z.number(),
  purpose: z.string(),
  holder: z.string(),
  acquiredAt: z.number(),
  ttlMs: z.number(),
  beat: z.number(),
});

const recordSchema = z.discriminatedUnion("state", [
  z.looseObject({
    ...acting,
    state: z.literal("creating"),
    ref: z.null(),
    arrival: z.null(),
    boundFrom: z.null(),
    reason: z.string().nullable(),
  }),
  z.looseObject({
    ...anyRecord,
    state: z.literal("ready"),
    actor: z.null(),
    ref: z.string(),
    holders: z.record(z.string(), hold),
    leases: z.record(z.string(), lease),
    arrival: z.string().nullable(),
    boundFrom: credentials.nullable(),
    parkedAt: z.number().nullable(),
    purge: z.literal(false),
    reason: z.null(),
  }),
  z.looseObject({
    ...acting,
    state: z.literal("stopping"),
    emptyHome: z.literal(true).optional(),
    restore: restore.optional(),
    ref: z.string().nullable(),
    arrival: z.string().nullable(),
    boundFrom: credentials.nullable(),
    reason: z.string(),
  }),
]);

const tombstoneSchema = z.looseObject({
  sandboxId: id,
  user: id.nullable(),
  thread: id.nullable(),
  generation: z.number(),
  reason: z.string(),
  by: id,
  createdAt: z.number(),
  stoppedAt: z.number(),
});

const sessionSchema = z.looseObject({
  instance: id,
  identity: z.looseObject({ bootId: z.string(), pidNamespace: z.string(), pid: z.number(), startTime: z.string() }),
  engines: z.array(z.string()),
  address: z.string().nullable(),
  ending: z.boolean(),
});

const SCHEMAS: Readonly<Record<string, z.ZodType>> = {
  record: recordSchema,
  tombstone: tombstoneSchema,
  thread: z.looseObject({ sandboxId: id.nullable(), tombstone: tombstoneSchema.nullable() }),
  home: z.looseObject({ user: id, thread: id, engine: z.string() }),
  lease: z.looseObject({ sandboxId: id }),
  session: sessionSchema,
  roster: z.array(sessionSchema),
  beat: z.looseObject({ instance: id, beat: z.number(), lastBeatAt: z.number() }),
  count,
  generation: z.number(),
  recovered: z.looseObject({ epoch: z.string() }),
  awaited: z.looseObject({ since: z.number(), forMs: z.number() }),
  transfer: z.looseObject({
    state: z.enum(["moved", "importing"]),
    id,
    since: z.number(),
    epoch: z.string().optional(),
    importer: z.string().optional(),
    attempt: count.optional(),
  }),
  entry: z.string(),
};

/** Rejects with `store_corrupt` that names the row. A table of a newer version is taken as it is. */
export function parseBody(key: RowKey, text: string): unknown {
  const parsed = (SCHEMAS[tableOf(key)] ?? z.unknown()).safeParse(parseJson(key, text));
  if (!parsed.success) throw corrupt(key, z.prettifyError(parsed.error));
  if (!isOwn(key, parsed.data)) throw corrupt(key, "it is the row of another sandbox");
  return parsed.data;
}

function isOwn(key: RowKey, body: unknown): boolean {
  if (key.startsWith("record/")) return recordKey((body as SandboxRecord).sandboxId) === key;
  if (key.startsWith("tombstone/")) return tombstoneKey((body as Tombstone).sandboxId) === key;
  return true;
}

function parseJson(key: RowKey, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's own message quotes the row, and rows hold tokens.
    throw corrupt(key, "it is not JSON");
  }
}

function corrupt(key: RowKey, problem: string): SandlotError {
  return new SandlotError("store_corrupt", { path: `row ${key}`, problem });
}

export function toSession(
  { ending: _, ...session }: SessionBody,
  { beat, lastBeatAt }: Pick<BeatBody, "beat" | "lastBeatAt">,
): Session {
  return { ...session, beat, lastBeatAt };
}
