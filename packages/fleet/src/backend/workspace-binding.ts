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
 * With `emptyHome` the home in it is emptied after `settleWorkspace` has brought the workspace home.
 *
 * Stale: a later generation has used the workspace. The workspace in this generation's slot is then an older copy that
 * cannot go home, so it is set aside for a person. Home belongs to the later generation, also when purging.
 *
 * Both functions look and then take one atomic step. So running them again repairs a crash between two steps, and
 * several instances may run them for the same spot: the loser of a race finds that its step no longer fits, and looks
 * again. An instance that was paused after its look cannot see on disk that the sandbox was given up since, so a binder
 * is asked once more before its step.
 */

import { type Generation, isSandlotError, type SandboxId, SandlotError } from "@sandlot/contract";
import type { WorkspaceSight, WorkspaceSpot, Workspaces } from "./backend.ts";

/** A lost race changes the state on disk, and it can change only a few times: more rounds than this is not a race. */
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
export async function settleWorkspace(
  workspaces: Workspaces,
  spot: WorkspaceSpot,
  purge: boolean,
  emptyHome = false,
): Promise<void> {
  if (spot.place !== "home" || purge) await bringHome(workspaces, spot, purge);
  if (!emptyHome || purge) return;
  const { home, stale } = await workspaces.look(spot);
  // A later generation has the home now; this request was made before it.
  if (home && !stale) await workspaces.emptyHome?.(spot);
}

async function bringHome(workspaces: Workspaces, spot: WorkspaceSpot, purge: boolean): Promise<void> {
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
      // A state that looked impossible stays so; only a step that looked possible and failed may be a lost race.
      const mayBeLost = !seen.stale && !(seen.home && seen.slot) && isLostRace(error);
      if (!mayBeLost || looks >= LOOKS_MAX) throw error;
    }
  }
}

/** The errors of a step whose source, target or owner has changed since the look. */
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
