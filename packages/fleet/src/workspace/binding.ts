/**
 * Where a thread's workspace must be, and how it gets there.
 *
 *   place      home  slot    ensureBound            settleWorkspace
 *   home        –     –      nothing to do          nothing to do
 *   slot        yes   no     moveIn                 nothing to do
 *   slot        no    yes    nothing to do          moveHome
 *   slot        no    no     makeIn                 nothing to do
 *   slot        yes   yes    workspace_conflict     workspace_conflict
 *
 * Both functions only look and then take one step that is atomic by itself, so a crash between any two is mended by
 * running them again, and several instances may run them for the same spot at the same time: whoever loses a race
 * finds that its step no longer fits, and looks again.
 */

import { isSandlotError, SandlotError } from "@sandlot/contract";
import type { WorkspaceSpot, Workspaces } from "../backend/backend.ts";

/** A lost race changes what is to be seen, and there are three things to be seen: more rounds than this is no race. */
const LOOKS_MAX = 5;

/** Puts the workspace where the sandbox has it mounted. `new` when there was none. Idempotent. */
export async function ensureBound(workspaces: Workspaces, spot: WorkspaceSpot): Promise<"existing" | "new"> {
  if (spot.place === "home") return "existing";
  return lookAndStep(workspaces, spot, async ({ home, slot }) => {
    if (slot) return "existing";
    if (home) {
      await workspaces.moveIn(spot);
      return "existing";
    }
    await workspaces.makeIn(spot);
    return "new";
  });
}

/** Brings the workspace home, or removes it. Only when no process is left that could use it. Idempotent. */
export async function settleWorkspace(workspaces: Workspaces, spot: WorkspaceSpot, purge: boolean): Promise<void> {
  if (purge) return purgeUnlessStale(workspaces, spot);
  if (spot.place === "home") return;
  await lookAndStep(workspaces, spot, async ({ slot }) => {
    if (slot) await workspaces.moveHome(spot);
  });
}

/** A workspace that a later generation has used is that one's to purge: this one has nothing left to settle. */
async function purgeUnlessStale(workspaces: Workspaces, spot: WorkspaceSpot): Promise<void> {
  try {
    await workspaces.purge(spot);
  } catch (error) {
    if (!isSandlotError(error, "stale_generation")) throw error;
  }
}

async function lookAndStep<T>(
  workspaces: Workspaces,
  spot: WorkspaceSpot,
  step: (seen: { readonly home: boolean; readonly slot: boolean }) => Promise<T>,
): Promise<T> {
  for (let looks = 1; ; looks++) {
    const seen = await workspaces.look(spot);
    const { user, thread, sandboxId } = spot;
    if (seen.home && seen.slot) throw new SandlotError("workspace_conflict", { user, thread, sandboxId });
    try {
      return await step(seen);
    } catch (error) {
      if (!isLostRace(error) || looks >= LOOKS_MAX) throw error;
    }
  }
}

/** What a step answers when what it was to move, or the room for it, is no longer as it was seen. */
function isLostRace(error: unknown): boolean {
  return (
    isSandlotError(error, "file_not_found") ||
    isSandlotError(error, "file_exists") ||
    isSandlotError(error, "workspace_conflict")
  );
}
