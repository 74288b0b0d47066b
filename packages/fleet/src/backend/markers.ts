/**
 * Markers: the proof of which thread a sandbox belongs to, after a loss of the store.
 *
 * They are a part of the contract beside `Workspaces`: an engine that shares no disk with the fleet keeps them
 * elsewhere, for example in a secret of its cluster.
 *
 * Rules for every implementation (each is a test of `testing/backend-suite.ts`)
 * - A marker exists before the blank that it names is bound, and is out of reach of everything inside a sandbox.
 * - A sandbox may have several: one for each generation that an instance tried to give it.
 * - Markers live as long as their sandbox, and as long as a workspace is in its slot.
 * - Every process of the fleet reads the same markers.
 */

import type { Generation, SandboxId } from "@sandlot/contract";
import type { Marker } from "./labels.ts";

export interface Markers {
  /**
   * Never writes over a marker: `file_exists` where the sandbox has another of that generation. After a loss of the
   * store generations may repeat, and the first marker may be the proof of whose workspace is inside. The same marker
   * may be written again. `file_not_found` where the sandbox is gone.
   */
  write(marker: Marker): Promise<void>;
  /** Every marker of the sandbox. */
  list(sandboxId: SandboxId): Promise<readonly Marker[]>;
  /** Does nothing when there is no such marker. */
  drop(sandboxId: SandboxId, generation: Generation): Promise<void>;
}
