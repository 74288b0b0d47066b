/**
 * The diff of a thread. Without a beginning it says what an undo would take back: changes since the newest checkpoint, or,
 * where that is the present, since the newest one before it that differs.
 */

import { type Checkpoint, type CheckpointDiff, isSandlotError } from "@sandlot/contract";
import type { Checkpoints, LongCall, WorkspaceOwner } from "../../backend/checkpoints.ts";
import type { DiffOptions } from "../../fleet.ts";

/** A diff is an answer for a person or a model, so it ends somewhere; `counts` has the rest. */
const CHANGES_MAX = 1_000;
const TEXTS_MAX_CHARS = 8 * 1024 * 1024;

export async function diffOf(
  checkpoints: Checkpoints,
  owner: WorkspaceOwner,
  { from, to, texts = false, maxChanges = CHANGES_MAX, paths }: DiffOptions,
  call: LongCall,
): Promise<CheckpointDiff> {
  const how = { ...call, texts, maxChanges, ...(paths !== undefined && { paths }) };
  const since = async (begin: string | null) =>
    boundedTexts(await checkpoints.diff(owner, { from: begin, to: to ?? null }, how));
  if (from !== undefined) return since(from);
  const newest = await since((await checkpoints.list(owner))[0]?.id ?? null);
  if (to !== undefined || !isEmpty(newest)) return newest;
  const earlier = await undoTarget(checkpoints, owner);
  return earlier === null ? newest : since(earlier.id);
}

function isEmpty({ counts: { added, changed, removed } }: CheckpointDiff): boolean {
  return added + changed + removed === 0;
}

/** `null`: no earlier state differs from the newest checkpoint. */
async function undoTarget(checkpoints: Checkpoints, owner: WorkspaceOwner): Promise<Checkpoint | null> {
  try {
    return await checkpoints.resolve(owner, "undo");
  } catch (error) {
    if (isSandlotError(error, "nothing_to_undo")) return null;
    throw error;
  }
}

/** The text diffs of many files together would fill a response: past the bound they are left out. */
function boundedTexts(diff: CheckpointDiff): CheckpointDiff {
  let left = TEXTS_MAX_CHARS;
  const changes = diff.changes.map((change) => {
    left -= change.diff?.length ?? 0;
    return left < 0 && change.diff !== null ? { ...change, diff: null } : change;
  });
  return { ...diff, changes };
}
