/**
 * Moving everything from one store to another.
 *
 *   former store:  mark `moved`, no session left ──▶ export ──▶ file
 *   new store:     file ──▶ mark `importing`, rows in pages ──▶ the mark goes, and with it the recovery
 *
 * A mark keeps instances out: none begins a session, and no step that gives, takes or ends something works without one.
 * So a former store does not change after its last session has ended, and a half-filled store gives no answers.
 *
 * Why an import may end the recovery at once: recovery exists for holds and engine objects that a lost store has
 * forgotten. An export under the mark has forgotten none. No instance held anything, and none can begin to. Records that
 * an instance was creating or stopping are in it, and the next instance takes them over as from any dead actor.
 *
 * Every step works on one page, so a crash leaves a marked store. Repeating an import skips the rows that are there.
 */

import { isHeld, type ReadyRecord, type SandboxRecord, type Tombstone } from "../record.ts";
import type {
  ExportCursor,
  ExportPage,
  FinishImportRequest,
  ImportAnswer,
  TransferMark,
  TransferRow,
} from "../store.ts";
import type { Tables } from "../tables.ts";
import { withRenewedLeases } from "./recovery.ts";
import { insert, raiseGeneration } from "./rows.ts";

/** More than any store keeps. */
const TOMBSTONES_MAX = 100_000;

export function beginTransfer(tables: Tables, { state, id }: Omit<TransferMark, "since">): TransferMark | null {
  const present = tables.transfer();
  if (present !== null) return present;
  if (state === "importing" && isUsed(tables)) return null;
  const mark: TransferMark = { state, id, since: tables.now() };
  tables.putTransfer(mark);
  return mark;
}

function isUsed(tables: Tables): boolean {
  return tables.countAll() > 0 || tables.sessions().length > 0 || !tables.meta().recovering;
}

export function endTransfer(tables: Tables, { state, id }: Pick<TransferMark, "state" | "id">): boolean {
  if (!isMarked(tables, state, id)) return false;
  tables.putTransfer(null);
  return true;
}

function isMarked(tables: Tables, state: TransferMark["state"], id: string): boolean {
  const mark = tables.transfer();
  return mark?.state === state && mark.id === id;
}

/** The first page has the tombstones, the others the records in the order of their ids. */
export function exportPage(tables: Tables, after: ExportCursor | null, limit: number): ExportPage {
  if (after === null) {
    const newestFirst = tables.tombstones({ idPrefix: "" }, TOMBSTONES_MAX);
    return { rows: newestFirst.toReversed().map((tombstone) => ({ kind: "tombstone", tombstone })), next: "" };
  }
  const left = tables.records().filter(({ sandboxId }) => sandboxId > after);
  const page = left.sort((one, other) => (one.sandboxId < other.sandboxId ? -1 : 1)).slice(0, limit);
  const rows: TransferRow[] = page.map((record) => ({ kind: "record", record: exported(record, tables.now()) }));
  return { rows, next: left.length > page.length ? (page.at(-1)?.sandboxId ?? null) : null };
}

/** As if the sessions of its holders had ended. Remote leases stay, with a beat that no observer has seen. */
function exported(record: SandboxRecord, now: number): SandboxRecord {
  if (record.state !== "ready" || !isHeld(record)) return record;
  const left: ReadyRecord = { ...withRenewedLeases(record), holders: {} };
  const wasHeld = Object.keys(record.holders).length > 0;
  const used = wasHeld ? { ...left, arrival: null } : left;
  return isHeld(used) ? used : { ...used, parkedAt: record.parkedAt ?? now };
}

export function importRows(tables: Tables, id: string, rows: readonly TransferRow[]): ImportAnswer {
  if (!isMarked(tables, "importing", id)) return { kind: "unmarked" };
  const clash = rows.find((row) => row.kind === "record" && isClash(tables, row.record));
  if (clash?.kind === "record") return { kind: "clash", sandboxId: clash.record.sandboxId };
  const now = tables.now();
  for (const row of rows) {
    if (row.kind === "tombstone") putTombstone(tables, row.tombstone, now);
    else if (tables.record(row.record.sandboxId) === null) insert(tables, notLaterThan(row.record, now));
  }
  raiseGeneration(tables, Math.max(0, ...rows.map(generationOf)));
  return { kind: "imported" };
}

function generationOf(row: TransferRow): number {
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

/** The clock of the former store may be ahead. A sandbox that was parked in the future would be idle too late. */
function notLaterThan<R extends SandboxRecord>(record: R, now: number): R {
  const parkedAt = record.parkedAt === null ? null : Math.min(record.parkedAt, now);
  return { ...record, createdAt: Math.min(record.createdAt, now), parkedAt };
}

export function finishImport(tables: Tables, { id, generation, isWhole }: FinishImportRequest): boolean {
  if (!isMarked(tables, "importing", id)) return false;
  raiseGeneration(tables, generation);
  if (isWhole) tables.putMeta({ ...tables.meta(), recovering: false });
  tables.putTransfer(null);
  return true;
}
