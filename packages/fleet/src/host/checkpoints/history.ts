/** The history of one thread: names of checkpoints, and where undo and redo go. Pure. */

import { SandlotError } from "@sandlot/contract";
import type { CheckpointRecord } from "./records.ts";

const PREFIX_MIN = 4;

/** By id, label, or an unambiguous prefix of the id. A label that several have means the newest of them. */
export function findRecord(records: readonly CheckpointRecord[], thread: string, name: string): CheckpointRecord {
  const newestFirst = [...records].reverse();
  const exact = newestFirst.find(({ id }) => id === name) ?? newestFirst.find(({ label }) => label === name);
  if (exact !== undefined) return exact;
  const begun = name.length < PREFIX_MIN ? [] : records.filter(({ id }) => id.startsWith(name));
  const [only] = begun;
  if (only !== undefined && begun.length === 1) return only;
  throw new SandlotError("checkpoint_not_found", { thread, checkpoint: name });
}

export function resolveStep(
  records: readonly CheckpointRecord[],
  thread: string,
  direction: "undo" | "redo",
): CheckpointRecord {
  const byId = new Map(records.map((record) => [record.id, record]));
  const head = records.at(-1);
  const target = head === undefined ? null : direction === "undo" ? undone(byId, head) : redone(byId, head);
  if (target === null) throw new SandlotError("nothing_to_undo", { thread, direction });
  return target;
}

/**
 * What was there before. An undo or redo stands for what it has brought back, so a second undo goes further back. A
 * restore is an act of its own: undo takes it back.
 */
function before(byId: ReadonlyMap<string, CheckpointRecord>, record: CheckpointRecord): CheckpointRecord | null {
  let at = record;
  for (let steps = 0; steps <= byId.size; steps++) {
    if (at.restoredAs !== "undo" && at.restoredAs !== "redo") break;
    const back = byId.get(at.restoredFrom ?? "");
    if (back === undefined) break;
    at = back;
  }
  return byId.get(at.parent ?? "") ?? null;
}

function undone(byId: ReadonlyMap<string, CheckpointRecord>, head: CheckpointRecord): CheckpointRecord | null {
  let at = before(byId, head);
  for (let steps = 0; at !== null && steps <= byId.size; steps++) {
    if (!hasSameFiles(at, head)) return at;
    at = before(byId, at);
  }
  return null;
}

/** The state that the newest undo left, as long as nothing else has changed since. */
function redone(byId: ReadonlyMap<string, CheckpointRecord>, head: CheckpointRecord): CheckpointRecord | null {
  let at: CheckpointRecord | undefined = head;
  for (let steps = 0; at !== undefined && steps <= byId.size * 2; steps++) {
    const parent: CheckpointRecord | undefined = byId.get(at.parent ?? "");
    if (at.restoredAs === "undo" && parent !== undefined && !hasSameFiles(parent, head)) return parent;
    if (at.restoredAs === "redo") at = byId.get(at.restoredFrom ?? "");
    else if (parent !== undefined && hasSameFiles(parent, head)) at = parent;
    else return null;
  }
  return null;
}

function hasSameFiles(a: CheckpointRecord, b: CheckpointRecord): boolean {
  return a.tree === b.tree && a.links === b.links;
}
