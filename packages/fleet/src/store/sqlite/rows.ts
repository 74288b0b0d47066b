/**
 * Parses rows. A file can be damaged or edited, so every field that the transactions rely on is checked. The checks are
 * written by hand, because they run whenever another process has written.
 */

import type { SandboxId } from "@sandlot/contract";
import { CorruptRow } from "../../world/sqlite-driver.ts";
import type { ProcessIdentity } from "../../world/world.ts";
import type { SandboxRecord, Tombstone } from "../record.ts";
import type { Census, Session } from "../store.ts";
import type { ClockRow } from "../store-clock.ts";
import type { MetaRow } from "../tables.ts";
import type { TransferMark } from "../transfer/store-transfer.ts";

type Row = Readonly<Record<string, unknown>>;

/** The row `meta` of the file; the tables give the generation apart from the rest. */
export type StoredMeta = MetaRow & { readonly generation: number };

export function toMeta(row: Row | undefined): StoredMeta {
  if (row === undefined) throw new CorruptRow("the row `meta` is missing");
  const { epoch, recovering, generation } = row;
  if (typeof epoch !== "string" || typeof recovering !== "number" || typeof generation !== "number") {
    throw new CorruptRow("the row `meta` is damaged");
  }
  return { epoch: epoch as MetaRow["epoch"], recovering: recovering !== 0, generation };
}

export function toTransfer(row: Row | undefined): TransferMark | null {
  if (row?.transfer === null) return null;
  const value = parse(row?.transfer, "mark of a move");
  if (!isTransfer(value)) throw new CorruptRow("the mark of a move is damaged");
  return value;
}

export function toClock(row: Row | undefined): ClockRow {
  const { clock_boot: boot, clock_base: baseMs } = row ?? {};
  if (typeof boot !== "string" || typeof baseMs !== "number") throw new CorruptRow("the row `meta` is damaged");
  return { boot, baseMs };
}

export function toSession(row: Row): Session {
  const { instance, beat, last_beat_at: lastBeatAt } = row;
  const identity = parse(row.identity, "session");
  if (typeof instance !== "string" || typeof beat !== "number" || typeof lastBeatAt !== "number") {
    throw new CorruptRow("a session is damaged");
  }
  if (!isIdentity(identity)) throw new CorruptRow(`the identity of session ${instance} is damaged`);
  const { engines, address, ...process } = identity;
  return {
    ...{ instance: instance as Session["instance"], beat, lastBeatAt, identity: process },
    engines: Array.isArray(engines) ? engines.filter((engine) => typeof engine === "string") : [],
    address: typeof address === "string" ? address : null,
  };
}

/** The column `identity` also has what a session says of itself besides; versions that did not know it pass it over. */
export function sessionText({ identity, engines, address }: Session): string {
  return JSON.stringify({ ...identity, engines, address });
}

export function toRecord(row: Row): SandboxRecord {
  const value = parse(row.body, "record");
  if (!isRecord(value) || value.sandboxId !== row.sandbox_id)
    throw new CorruptRow(`the record of sandbox ${String(row.sandbox_id)} is damaged`);
  // Versions that did not name engines wrote none.
  return isText(value.engine) ? value : { ...value, engine: "" };
}

export function toRowid({ rowid }: Row): number {
  if (typeof rowid !== "number") throw new CorruptRow("a record has no number");
  return rowid;
}

export function toSandboxId({ sandbox_id: sandboxId }: Row): SandboxId {
  if (typeof sandboxId !== "string") throw new CorruptRow("a record has no id");
  return sandboxId as SandboxId;
}

export function toTombstone(row: Row): Tombstone {
  const value = parse(row.body, "tombstone");
  if (!isTombstone(value)) throw new CorruptRow(`the tombstone of sandbox ${String(row.sandbox_id)} is damaged`);
  return value;
}

export function toCount(row: Row | undefined): number {
  const count = row?.count;
  if (typeof count !== "number") throw new CorruptRow("a count is not a number");
  return count;
}

export function toCensus(rows: readonly Row[]): Census {
  const counts = { leased: 0, parked: 0, blank: 0, creating: 0, stopping: 0 };
  for (const row of rows) {
    const { state, threadless, held } = row;
    if (state === "creating" || state === "stopping") counts[state] += toCount(row);
    else counts[threadless === 1 ? "blank" : held === 1 ? "leased" : "parked"] += toCount(row);
  }
  return counts;
}

function parse(text: unknown, what: string): unknown {
  if (typeof text !== "string") throw new CorruptRow(`a ${what} is not text`);
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new CorruptRow(`a ${what} is not JSON`, { cause });
  }
}

export function isRecord(value: unknown): value is SandboxRecord {
  if (!isObject(value)) return false;
  return (
    isText(value.sandboxId) &&
    isTextOrNull(value.user) &&
    isTextOrNull(value.thread) &&
    isNumber(value.revision) &&
    isNumber(value.generation) &&
    isText(value.token) &&
    isText(value.backend) &&
    isText(value.blueprint) &&
    isText(value.blueprintHash) &&
    isText(value.place) &&
    isTextOrNull(value.arrival) &&
    (value.boundFrom === null || isCredentials(value.boundFrom)) &&
    isNumber(value.createdAt) &&
    typeof value.purge === "boolean" &&
    (value.state === "ready" ? isReady(value) : isActing(value))
  );
}

/** The fields that only a ready record has (`record.ts`). */
function isReady(value: Row): boolean {
  return (
    value.actor === null &&
    isText(value.ref) &&
    isMapOf(value.holders, isHold) &&
    isMapOf(value.leases, isLease) &&
    (value.parkedAt === null || isNumber(value.parkedAt)) &&
    value.purge === false &&
    value.reason === null
  );
}

/** An instance is working on it, and no caller holds it. */
function isActing(value: Row): boolean {
  const isOfItsState =
    value.state === "creating"
      ? value.ref === null && value.arrival === null && value.boundFrom === null && isTextOrNull(value.reason)
      : value.state === "stopping" && isTextOrNull(value.ref) && isText(value.reason);
  return (
    isOfItsState &&
    isText(value.actor) &&
    isMapOf(value.holders, never) &&
    isMapOf(value.leases, never) &&
    value.parkedAt === null
  );
}

function never(): boolean {
  return false;
}

function isHold(value: unknown): boolean {
  return isObject(value) && isNumber(value.generation) && isNumber(value.seq) && isNumber(value.since);
}

function isLease(value: unknown): boolean {
  return (
    isObject(value) &&
    isNumber(value.generation) &&
    isText(value.purpose) &&
    isText(value.holder) &&
    isNumber(value.acquiredAt) &&
    isNumber(value.ttlMs) &&
    isNumber(value.beat)
  );
}

function isCredentials(value: unknown): boolean {
  return isObject(value) && isNumber(value.generation) && isText(value.token);
}

function isIdentity(value: unknown): value is ProcessIdentity & { engines?: unknown; address?: unknown } {
  return (
    isObject(value) &&
    isText(value.bootId) &&
    isText(value.pidNamespace) &&
    isNumber(value.pid) &&
    isText(value.startTime)
  );
}

export function isTombstone(value: unknown): value is Tombstone {
  return (
    isObject(value) &&
    isText(value.sandboxId) &&
    isTextOrNull(value.user) &&
    isTextOrNull(value.thread) &&
    isNumber(value.generation) &&
    isText(value.reason) &&
    isText(value.by) &&
    isNumber(value.createdAt) &&
    isNumber(value.stoppedAt)
  );
}

function isTransfer(value: unknown): value is TransferMark {
  if (!isObject(value) || (value.state !== "moved" && value.state !== "importing")) return false;
  const { epoch = "", importer = "", attempt = 1 } = value;
  return isText(value.id) && isNumber(value.since) && isText(epoch) && isText(importer) && isNumber(attempt);
}

function isObject(value: unknown): value is Row {
  return typeof value === "object" && value !== null;
}

function isText(value: unknown): boolean {
  return typeof value === "string";
}

function isTextOrNull(value: unknown): boolean {
  return value === null || typeof value === "string";
}

function isNumber(value: unknown): boolean {
  return typeof value === "number";
}

function isMapOf(value: unknown, isEntry: (entry: unknown) => boolean): boolean {
  if (!isObject(value)) return false;
  for (const key in value) if (!isEntry(value[key])) return false;
  return true;
}
