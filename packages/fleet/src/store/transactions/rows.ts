/**
 * Shared by the transactions: the only ways to write a record, and the counts that decide admission.
 *
 *   insert   absent → a state
 *   change   within a state
 *   move     from a state to another
 *   erase    a state → absent
 *
 * Each move is checked against the table of moves (`record.ts`) before a row is written.
 */

import type { InstanceId, UserId } from "@sandlot/contract";
import { isCountable, isHeld, MOVES, type ReadyRecord, type SandboxRecord, type State } from "../record.ts";
import type { Limits, Refusal } from "../store.ts";
import type { Tables } from "../tables.ts";

/** Writes the first record of a sandbox. */
export function insert<R extends SandboxRecord>(tables: Tables, record: R): R {
  const before = tables.record(record.sandboxId);
  if (before !== null) throw new Error(`Sandbox ${record.sandboxId} is ${before.state}, so it has a record already.`);
  requireMove("absent", record.state);
  tables.putRecord(record);
  return record;
}

/** Writes a changed record of the same state. Every write after the first raises `revision`: here, and in `move`. */
export function change<R extends SandboxRecord>(tables: Tables, record: R, changes: Changes<R>): R {
  const next: R = { ...record, ...changes, revision: record.revision + 1 };
  tables.putRecord(next);
  return next;
}

/** The fields that can change within a state. */
type Changes<R extends SandboxRecord> = Partial<Omit<R, "sandboxId" | "revision" | "state">>;

/** Writes a record that has moved to another state. */
export function move<R extends SandboxRecord>(tables: Tables, record: SandboxRecord, moved: R): R {
  requireMove(record.state, moved.state);
  const next: R = { ...moved, revision: record.revision + 1 };
  tables.putRecord(next);
  return next;
}

/** Removes the record of a sandbox of which nothing is left. */
export function erase(tables: Tables, record: SandboxRecord): void {
  requireMove(record.state, "absent");
  tables.deleteRecord(record.sandboxId);
}

function requireMove(from: State | "absent", to: State | "absent"): void {
  if (!MOVES[from].includes(to)) throw new Error(`A sandbox cannot move from ${from} to ${to}.`);
}

/**
 * Removes a hold, which ended at `leftAt`. After the last one the sandbox is parked. Unless its holder says what it has
 * `left`, the sandbox counts as used, and the next caller does not get it as new. Whether its daemon knows its binding
 * is then unknown.
 */
export function dropHold(
  tables: Tables,
  record: ReadyRecord,
  instance: InstanceId,
  leftAt: number,
  left: Partial<Pick<ReadyRecord, "arrival" | "boundFrom">> = { arrival: null },
): ReadyRecord {
  const { [instance]: _, ...holders } = record.holders;
  return change(tables, record, { holders, ...left, parkedAt: leftAt });
}

/** For a record that is held once more: what is known of holders that left while others stayed. */
export function parkedAtOfHeld(before: ReadyRecord): number | null {
  return isHeld(before) ? before.parkedAt : null;
}

export function hasSession(tables: Tables, instance: InstanceId): boolean {
  return tables.hasSession(instance);
}

/**
 * Checks the limits in the same transaction that then uses the room. `user` is null for a blank. The narrowest limit
 * comes first: room made there is room for the fleet too, but not the other way round.
 */
export function refuseIfFull(
  tables: Tables,
  limits: Limits,
  user: UserId | null,
  engine: string,
): Extract<Refusal, { kind: "full" }> | null {
  const { max, maxPerUser, maxPerEngine } = limits;
  if (maxPerUser !== null && user !== null && tables.countOf(user) >= maxPerUser) {
    return { kind: "full", scope: "user", max: maxPerUser, counts: tables.census(user) };
  }
  if (maxPerEngine !== null && tables.countOn(engine) >= maxPerEngine) {
    return { kind: "full", scope: "engine", max: maxPerEngine, counts: tables.census(null) };
  }
  if (max === null || tables.countAll() < max) return null;
  return { kind: "full", scope: "fleet", max, counts: tables.census(null) };
}

/** Keeps the counter ahead of every generation that was ever seen, also of those before a loss of the store. */
export function raiseGeneration(tables: Tables, floor: number): void {
  if (tables.generation() < floor && isCountable(floor)) tables.putGeneration(floor);
}
