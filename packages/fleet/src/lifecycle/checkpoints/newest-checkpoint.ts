/**
 * What a thread that has lost its sandbox learns of its newest checkpoint: which one it is, and whether files have changed
 * since. The opening waits for the answer for a short time only; a failure is an event, and the recovery goes without.
 */

import { isSandlotError, type RecoveredCheckpoint, type Recovery } from "@sandlot/contract";
import type { Backend } from "../../backend/backend.ts";
import type { Checkpoints, WorkspaceOwner } from "../../backend/checkpoints.ts";
import { type EventBus, reportFailure } from "../../observe/event-bus.ts";
import { within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";

export interface NewestCheckpointParts {
  readonly backend: Pick<Backend, "checkpoints">;
  readonly world: World;
  readonly bus: EventBus;
}

/** A workspace of 10,000 files is compared in a fifth of it, with the start of a worker. */
const PATIENCE_MS = 1_000;
/** A checkpoint that is taken meanwhile is the newest one. */
const LOOKS_MAX = 3;

/** Never rejects. */
export async function withNewestCheckpoint(
  { backend: { checkpoints }, world, bus }: NewestCheckpointParts,
  owner: WorkspaceOwner,
  recovery: Recovery,
  signal: AbortSignal,
): Promise<Recovery> {
  if (recovery.kind !== "restored" || checkpoints === undefined) return recovery;
  let known: RecoveredCheckpoint | null = null;
  const isLate = new Error("the workspace is too big to be compared while an acquire waits");
  await reportFailure(bus, "newest checkpoint", async () => {
    try {
      await within(
        world,
        PATIENCE_MS,
        signal,
        () => isLate,
        async (ending) => {
          for (let look = 0; look < LOOKS_MAX; look++) {
            const newest = await checkpoints.newest(owner);
            if (newest === null || newest.id === known?.id) return;
            const { id, label, takenAt } = newest;
            known = { id, label, takenAt, differs: null };
            const differs = await differsFrom(checkpoints, owner, id, ending);
            known = { ...known, differs };
          }
        },
      );
    } catch (error) {
      if (error !== isLate && !signal.aborted) throw error;
    }
  });
  return known === null ? recovery : { ...recovery, checkpoint: known };
}

/** `null`: it was removed meanwhile. */
async function differsFrom(
  checkpoints: Checkpoints,
  owner: WorkspaceOwner,
  id: string,
  signal: AbortSignal,
): Promise<boolean | null> {
  try {
    const how = { signal, texts: false, maxChanges: 0 };
    const { counts } = await checkpoints.diff(owner, { from: id, to: null }, how);
    return counts.added + counts.changed + counts.removed > 0;
  } catch (error) {
    if (isSandlotError(error, "checkpoint_not_found")) return null;
    throw error;
  }
}
