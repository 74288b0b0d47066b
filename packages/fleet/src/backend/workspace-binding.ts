/**
 * Where a thread's workspace must be, and how it gets there.
 *
 *   place   home  slot    ensureBound            settleWorkspace       …with purge
 *   home     –     –      nothing to do          nothing to do         purge
 *   slot     yes   no     moveIn                 nothing to do         purge
 *   slot     no    yes    nothing to do          moveHome              purge
 *   slot     no    no     makeIn                 nothing to do         purge
 *   slot     yes   yes    workspace_conflict     workspace_conflict    purge
 *   stale    –     yes    stale_generation       quarantine            quarantine
 *   stale    –     no     stale_generation       nothing to do         nothing to do
 *
 * Stale: a later generation has used the workspace. What is still in this one's slot is then a second, older version
 * that nobody can put back, so it is set aside for a person; and home is the later one's, also when purging.
 *
 * Both functions only look and then take one step that is atomic by itself, so a crash between any two is mended by
 * running them again, and several instances may run them for the same spot at the same time: whoever loses a race
 * finds that its step no longer fits, and looks again. Who was paused after looking is not told by the disk that the
 * sandbox has been given up since, so whoever binds is asked once more before its step.
 */

import { type Generation, isSandlotError, type SandboxId, SandlotError } from "@sandlot/contract";
import type { WorkspaceSight, WorkspaceSpot, Workspaces } from "./backend.ts";

/** A lost race changes what is to be seen, and it can change only a few times: more rounds than this is no race. */
const LOOKS_MAX = 5;

/** The sandbox may no longer be the caller's to bind. Nothing was moved. */
export class BindingInDoubt extends Error {}

/** Puts the workspace where the sandbox has it mounted. `new` when there was none. Idempotent. */
export async function ensureBound(
  workspaces: Workspaces,
  spot: WorkspaceSpot,
  isOurs: () => boolean = () => true,
): Promise<"existing" | "new"> {
  if (spot.place === "home") return "existing";
  return lookAndStep(workspaces, spot, async ({ home, slot, stale }) => {
    const { sandboxId, generation } = spot;
    if (stale) throw new SandlotError("stale_generation", { sandboxId, generation, current: null });
    if (home && slot) throw conflict(spot);
    if (slot) return "existing";
    if (!isOurs()) throw new BindingInDoubt();
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
  if (spot.place === "home" && !purge) return;
  await lookAndStep(workspaces, spot, async ({ home, slot, stale }) => {
    if (stale) return slot ? workspaces.quarantine(spot) : undefined;
    if (purge) return workspaces.purge(spot);
    if (home && slot) throw conflict(spot);
    return slot ? workspaces.moveHome(spot) : undefined;
  });
}

/** Whether a thread without a sandbox has files. No generation is older than 0, so nothing else is judged. */
export async function hasHome(workspaces: Workspaces, key: Pick<WorkspaceSpot, "user" | "thread">): Promise<boolean> {
  const spot = { ...key, sandboxId: "none" as SandboxId, generation: 0 as Generation, place: "home" } as const;
  return (await workspaces.look(spot)).home;
}

async function lookAndStep<T>(
  workspaces: Workspaces,
  spot: WorkspaceSpot,
  step: (seen: WorkspaceSight) => Promise<T>,
): Promise<T> {
  for (let looks = 1; ; looks++) {
    const seen = await workspaces.look(spot);
    try {
      return await step(seen);
    } catch (error) {
      // What was seen to be impossible is impossible; only what looked possible and was not may be a lost race.
      const mayBeLost = !seen.stale && !(seen.home && seen.slot) && isLostRace(error);
      if (!mayBeLost || looks >= LOOKS_MAX) throw error;
    }
  }
}

/** What a step answers when what it was to move, the room for it, or whose it is, is no longer as it was seen. */
function isLostRace(error: unknown): boolean {
  return (
    isSandlotError(error, "file_not_found") ||
    isSandlotError(error, "file_exists") ||
    isSandlotError(error, "workspace_conflict") ||
    isSandlotError(error, "stale_generation")
  );
}

function conflict({ user, thread, sandboxId }: WorkspaceSpot): SandlotError {
  return new SandlotError("workspace_conflict", { user, thread, sandboxId });
}
