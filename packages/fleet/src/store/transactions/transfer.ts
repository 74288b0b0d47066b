/**
 * Moving everything from one store to another.
 *
 *   former store:  mark `moved`, no session left ──▶ export ──▶ file
 *   new store:     file ──▶ mark `importing`, rows in pages ──▶ the mark goes, and with it the recovery
 *
 * A mark keeps instances out: none begins a session, and no step that gives, takes or ends something works without one.
 * So a former store does not change after its last session has ended, and a half-filled store gives no answers. Entries
 * are written without a session, and refuse the mark themselves (`rows/row-entries.ts`).
 *
 * Why an import may end the recovery at once: recovery exists for holds and engine objects that a lost store has
 * forgotten. An export under the mark has forgotten none. No instance held anything, and none can begin to. Records that
 * an instance was creating or stopping are in it, and the next instance takes them over as from any dead actor.
 *
 * Every step works on one page, so a crash leaves a marked store. Repeating an import skips the rows that are there.
 *
 * The mark outlives an epoch, and rows do not. So the mark names the epoch in which its process began. A step in a later
 * one is refused, and the import has to be repeated: it would otherwise end the recovery of engines whose records went.
 */

import { isAnonymous, isHeld, type SandboxRecord, type Tombstone } from "../record.ts";
import type { Tables } from "../tables.ts";
import type {
  ExportCursor,
  ExportPage,
  FinishAnswer,
  FinishImportRequest,
  ImportAnswer,
  ImportClaim,
  ImportRefusal,
  StoreOverview,
  ThreadHome,
  TransferMark,
  TransferRow,
  WantedMark,
} from "../transfer/store-transfer.ts";
import { withRenewedLeases } from "./recovery.ts";
import { insert, raiseGeneration } from "./rows.ts";

/** More than any store keeps. */
const TOMBSTONES_MAX = 100_000;

export function beginTransfer(tables: Tables, wanted: WantedMark): TransferMark | null {
  const present = tables.transfer();
  const isOurs = present?.state === "importing" && wanted.state === "importing" && present.id === wanted.id;
  if (present !== null && !isOurs) return present;
  if (present === null && wanted.state === "importing" && isUsed(tables)) return null;
  const attempt = present === null ? 1 : (present.attempt ?? 1) + 1;
  const mark: TransferMark = {
    ...wanted,
    since: present?.since ?? tables.now(),
    epoch: tables.meta().epoch,
    ...(wanted.state === "importing" && { attempt }),
  };
  tables.putTransfer(mark);
  return mark;
}

/**
 * A shared store recovers by engine: `importRows` asks for that of each record. It keeps the homes of threads also when
 * no sandbox and no instance is left.
 */
function isUsed(tables: Tables): boolean {
  if (tables.countAll() > 0 || tables.sessions().length > 0) return true;
  return tables.isShared ? tables.homes().length > 0 : !tables.isRecovering("");
}

export function endTransfer(tables: Tables, wanted: WantedMark): boolean {
  const mark = tables.transfer();
  if (mark?.state !== wanted.state || mark.id !== wanted.id) return false;
  if (wanted.state === "importing" && mark.importer !== wanted.importer) return false;
  tables.putTransfer(null);
  return true;
}

/** Why this process must not go on with its import; `null`: it may. */
export function importRefusal(tables: Tables, { id, importer }: ImportClaim): ImportRefusal | null {
  const mark = tables.transfer();
  if (mark?.state !== "importing" || mark.id !== id) return { kind: "unmarked" };
  if (mark.importer !== importer) return { kind: "taken-over" };
  return mark.epoch === tables.meta().epoch ? null : { kind: "new-epoch" };
}

/** The first page has the tombstones. Then come the homes, then the records, each in the order of their keys. */
export function exportPage(tables: Tables, after: ExportCursor | null, limit: number): ExportPage {
  if (after === null) {
    const newestFirst = tables.tombstones({ idPrefix: "" }, TOMBSTONES_MAX);
    return { rows: newestFirst.toReversed().map((tombstone) => ({ kind: "tombstone", tombstone })), next: HOMES };
  }
  if (after.startsWith(HOMES)) {
    const homes = pageOf(tables.homes(), homeKey, after, limit);
    return { rows: homes.page.map((home) => ({ kind: "home", home })), next: homes.next ?? RECORDS };
  }
  const records = pageOf(tables.records(), ({ sandboxId }) => `${RECORDS}${sandboxId}`, after, limit);
  return {
    rows: records.page.map((record) => ({ kind: "record", record: exported(record) })),
    next: records.next,
  };
}

const HOMES = "home/";
const RECORDS = "record/";

/** Neither a user nor a thread has a slash. */
function homeKey({ user, thread }: ThreadHome): string {
  return `${HOMES}${user}/${thread}`;
}

/** `next`: the key of the last row, if more follow. */
function pageOf<Row>(rows: readonly Row[], keyOf: (row: Row) => string, after: string, limit: number) {
  const left = rows.map((row) => ({ key: keyOf(row), row })).filter(({ key }) => key > after);
  const page = left.sort((one, other) => (one.key < other.key ? -1 : 1)).slice(0, limit);
  return { page: page.map(({ row }) => row), next: left.length > page.length ? (page.at(-1)?.key ?? null) : null };
}

/** As if the sessions of its holders had ended. Remote leases stay, with a beat that no observer has seen. */
function exported(record: SandboxRecord): SandboxRecord {
  if (record.state !== "ready" || !isHeld(record)) return record;
  const wasHeld = Object.keys(record.holders).length > 0;
  return { ...withRenewedLeases(record), holders: {}, arrival: wasHeld ? null : record.arrival };
}

/** A page is written as a whole, or not at all. */
export function importRows(tables: Tables, claim: ImportClaim, rows: readonly TransferRow[]): ImportAnswer {
  const refusal = importRefusal(tables, claim);
  if (refusal !== null) return refusal;
  for (const row of rows) {
    if (row.kind === "home" && hasOtherHome(tables, row.home)) return { kind: "rehomed", home: row.home };
    if (row.kind !== "record") continue;
    if (!tables.isRecovering(row.record.engine)) return { kind: "used", engine: row.record.engine };
    if (isClash(tables, row.record)) return { kind: "clash", sandboxId: row.record.sandboxId };
  }
  const now = tables.now();
  for (const row of rows) {
    if (row.kind === "tombstone") putTombstone(tables, row.tombstone, now);
    else if (row.kind === "home") addHome(tables, row.home);
    else if (tables.record(row.record.sandboxId) === null) writeRecord(tables, atTime(row.record, now));
  }
  raiseGeneration(tables, Math.max(0, ...rows.map(generationOf)));
  return { kind: "imported" };
}

/** The record of a store of one host is also its thread's home. */
function writeRecord(tables: Tables, record: SandboxRecord): void {
  insert(tables, record);
  const { user, thread, engine } = record;
  if (user !== null && thread !== null && !isAnonymous(thread)) addHome(tables, { user, thread, engine });
}

function hasOtherHome(tables: Tables, { user, thread, engine }: ThreadHome): boolean {
  const present = tables.homeOf(user, thread);
  return present !== null && present !== engine;
}

/** A home that is there stays: the thread's workspace is on its engine. */
function addHome(tables: Tables, { user, thread, engine }: ThreadHome): void {
  if (tables.homeOf(user, thread) === null) tables.putHome(user, thread, engine);
}

function generationOf(row: TransferRow): number {
  if (row.kind === "home") return 0;
  return row.kind === "tombstone" ? row.tombstone.generation : row.record.generation;
}

function isClash(tables: Tables, { sandboxId, user, thread }: SandboxRecord): boolean {
  const known = user === null || thread === null ? null : tables.recordOf(user, thread);
  return known !== null && known.sandboxId !== sandboxId;
}

function putTombstone(tables: Tables, tombstone: Tombstone, now: number): void {
  if (tables.tombstone(tombstone.sandboxId) !== null) return;
  tables.putTombstone({ ...tombstone, stoppedAt: Math.min(tombstone.stoppedAt, now) });
}

/**
 * The clock of the former store may be ahead, and a sandbox that was parked in the future would be idle too late. A
 * sandbox whose holders were left behind is parked now.
 */
function atTime<R extends SandboxRecord>(record: R, now: number): R {
  const createdAt = Math.min(record.createdAt, now);
  if (record.state !== "ready" || isHeld(record)) return { ...record, createdAt };
  return { ...record, createdAt, parkedAt: Math.min(record.parkedAt ?? now, now) };
}

export function finishImport(tables: Tables, request: FinishImportRequest): FinishAnswer {
  const refusal = importRefusal(tables, request);
  if (refusal !== null) return refusal;
  const { generation, recovered } = request;
  raiseGeneration(tables, generation);
  for (const engine of recovered) tables.endRecovery(engine);
  tables.putTransfer(null);
  return { kind: "finished" };
}

export function overview(tables: Tables): StoreOverview {
  const { epoch, recovering } = tables.meta();
  return { epoch, recovering, generation: tables.generation(), now: tables.now(), transfer: tables.transfer() };
}
