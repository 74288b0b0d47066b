/**
 * Where an undo and a redo go in a thread's history, for every implementation of `Checkpoints`.
 *
 * A checkpoint made by an undo or a redo stands for the one that it brought back: the next undo goes on from there, not
 * to the state that the undo has just left. One made by a restore is a step of its own, which an undo takes back.
 *
 *   c1 ── c2          present = c2
 *   undo  → c1        u1 has c1's tree and the parent c2
 *   undo  → c0        from c1 on; redo → u1's tree (c1); redo → c2
 */

export interface HistoryEntry {
  readonly id: string;
  readonly parent: string | null;
  readonly restoredFrom: string | null;
  /** What made it, where a restore did. */
  readonly as: "restore" | "undo" | "redo" | null;
  /** Equal for equal content. */
  readonly tree: string;
}

/** `get` returns undefined for an entry that was removed. `null`: there is nothing to go to. */
export function resolveDirection<Entry extends HistoryEntry>(
  head: Entry | undefined,
  get: (id: string) => Entry | undefined,
  direction: "undo" | "redo",
): Entry | null {
  if (head === undefined) return null;
  return direction === "undo" ? undoTarget(head, get) : redoTarget(head, get);
}

function undoTarget<Entry extends HistoryEntry>(head: Entry, get: (id: string) => Entry | undefined): Entry | null {
  const seen = new Set<string>();
  let entry: Entry | undefined = standsFor(head, get);
  while (entry !== undefined && !seen.has(entry.id)) {
    seen.add(entry.id);
    const parent: Entry | undefined = entry.parent === null ? undefined : get(entry.parent);
    if (parent === undefined) return null;
    if (parent.tree !== head.tree) return parent;
    entry = standsFor(parent, get);
  }
  return null;
}

/** The state that the newest undo left, as long as nothing else has changed since. */
function redoTarget<Entry extends HistoryEntry>(head: Entry, get: (id: string) => Entry | undefined): Entry | null {
  const seen = new Set<string>();
  let at: Entry | undefined = head;
  while (at !== undefined && !seen.has(at.id)) {
    seen.add(at.id);
    const parent: Entry | undefined = at.parent === null ? undefined : get(at.parent);
    if (at.as === "undo" && parent !== undefined && parent.tree !== head.tree) return parent;
    if (at.as === "redo" && at.restoredFrom !== null) at = get(at.restoredFrom);
    else if (parent !== undefined && parent.tree === head.tree) at = parent;
    else return null;
  }
  return null;
}

/** A damaged history may have a circle. */
function standsFor<Entry extends HistoryEntry>(start: Entry, get: (id: string) => Entry | undefined): Entry {
  const seen = new Set<string>();
  let entry = start;
  while ((entry.as === "undo" || entry.as === "redo") && entry.restoredFrom !== null && !seen.has(entry.id)) {
    seen.add(entry.id);
    const from = get(entry.restoredFrom);
    if (from === undefined) return entry;
    entry = from;
  }
  return entry;
}
