/**
 * Binding a workspace to a sandbox, and bringing it home again (rule 13).
 *
 * A thread's workspace is in exactly one place: at home, or in the slot of the sandbox that uses it. Each step below is
 * a single rename; after a crash between any two, running the whole again finds out where it stopped.
 *
 *   ensureBound:   home only → move in     slot only → done            neither → make one     both → conflict
 *   settle:        slot only → move home   home only, neither → done   both → conflict        (purge removes it)
 *
 * A conflict touches nothing: which of the two is right is for a person to say.
 */

import { isSandlotError, SandlotError } from "@sandlot/contract";
import type { WorkspaceSpot, Workspaces } from "../backend/backend.ts";

/** Somebody else may do the same step at the same time; then the step fails, and looking again shows it done. */
const TRIES_MAX = 3;

/** Makes sure that the workspace is where the sandbox sees it. Says whether the thread had one before. */
export async function ensureBound(workspaces: Workspaces, spot: WorkspaceSpot): Promise<"existing" | "new"> {
  if (spot.place === "home") return "existing";
  return repeat(async () => {
    const { home, slot } = await workspaces.look(spot);
    if (home && slot) throw conflict(spot);
    if (slot) return "existing";
    if (home) await workspaces.moveIn(spot);
    else await workspaces.makeIn(spot);
    return home ? "existing" : "new";
  });
}

/** Brings the workspace home, or removes it. Only when no process of the sandbox is left. */
export async function settleWorkspace(workspaces: Workspaces, spot: WorkspaceSpot, purge: boolean): Promise<void> {
  if (purge) return workspaces.purge(spot);
  if (spot.place === "home") return;
  await repeat(async () => {
    const { home, slot } = await workspaces.look(spot);
    if (home && slot) throw conflict(spot);
    if (slot) await workspaces.moveHome(spot);
  });
}

async function repeat<T>(step: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await step();
    } catch (error) {
      if (
        tries === TRIES_MAX ||
        isSandlotError(error, "workspace_conflict") ||
        isSandlotError(error, "stale_generation")
      )
        throw error;
    }
  }
}

function conflict({ user, thread, sandboxId }: WorkspaceSpot): SandlotError {
  return new SandlotError("workspace_conflict", { user, thread, sandboxId });
}
