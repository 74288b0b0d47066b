/** What a workspace refuses. */

import { type SandboxId, SandlotError } from "@sandlot/contract";
import type { WorkspaceSpot } from "../../../packages/fleet/src/backend/backend.ts";

export function staleGeneration(sandboxId: SandboxId, generation: number, current: number): SandlotError {
  return new SandlotError("stale_generation", { sandboxId, generation, current });
}

export function conflict(spot: WorkspaceSpot): SandlotError {
  const { user, thread, sandboxId } = spot;
  return new SandlotError("workspace_conflict", { user, thread, sandboxId });
}
