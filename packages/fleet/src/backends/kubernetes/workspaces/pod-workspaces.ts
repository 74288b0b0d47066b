/**
 * Workspaces of sandboxes that are pods: the contract of `Workspaces`, and what the making and removing of a pod needs
 * beside it. Two implementations:
 *
 *   SharedWorkspaces   one claim for all threads, which gateways mount too (`shared-workspaces.ts`)
 *   ClaimWorkspaces    a claim for each thread, which only its pod mounts (`claim-workspaces.ts`)
 *
 * The order of calls for one pod:
 *
 *   prepare ──▶ POST pod (gated) ──▶ mayRun ──▶ fence ──▶ gate away ──▶ … ──▶ proof that nothing runs ──▶ release
 *
 * Rules for every implementation
 * - `prepare` changes nothing that a running sandbox of the thread could notice.
 * - `fence` is the last step before a thread's pod may run. After it no older generation reaches the workspace.
 * - Every call has a deadline, and rejects with `engine_unavailable` when the volume or the API does not respond. The
 *   call may still take effect; calling it again is safe.
 */

import type { Generation, SandboxId, ThreadKey } from "@sandlot/contract";
import type { CreateSpec, Place, WorkspaceSpot, Workspaces } from "../../../backend/backend.ts";
import type { HostWorkspaces } from "../../../backend/host-workspaces.ts";

/** The part of a `CreateSpec` that decides what is mounted. */
export type PodSpec = Pick<CreateSpec, "labels" | "marker">;

/** What a pod mounts its workspace from. */
export interface PodVolume {
  readonly place: Place;
  readonly claimName: string;
  /** Below the claim's root; `null` for the root itself. */
  readonly subPath: string | null;
  /** `/mnt` for a blank, whose workspace arrives below it; `/mnt/user-data` for a thread's own pod. */
  readonly mountPath: string;
}

/** A file whose content shows that a workspace has arrived: `expect` of a rebind. */
export interface Arrival {
  /** As the sandbox sees it. */
  readonly path: string;
  readonly nonce: string;
}

export interface PodWorkspaces extends Workspaces {
  /** Whether blanks can be made. */
  readonly hasLateBinding: boolean;
  /** Before the pod is made: what it mounts must exist, or have a name. */
  prepare(spec: PodSpec): Promise<PodVolume>;
  /**
   * Gives the workspace at home to this generation. `stale_generation` when a later one has it; then the pod must be
   * removed. `none` for a blank.
   */
  fence(spec: PodSpec): Promise<"existing" | "new" | "none">;
  /**
   * Nothing of the sandbox runs any more. `occupied`: a workspace is in its slot, so its pod object and its markers
   * must stay until `moveHome`, `purge` or `quarantine` has emptied the slot; `isOccupied` then says so.
   */
  release(place: Place): Promise<"dropped" | "occupied">;
  /** Whether a released slot still has a workspace. */
  isOccupied(place: Place): Promise<boolean>;
  /** What a blank's daemon must see before it answers a rebind; `null` where nothing has to arrive. */
  arrival(spot: Pick<WorkspaceSpot, "generation" | "place">): Arrival | null;
  /** The files of threads without a sandbox; `null` where only a sandbox reaches them. */
  readonly files: HostWorkspaces | null;
  /** Removes what crashes have left. `isKnown` says whether the engine, or the store, still has the sandbox. */
  sweep(isKnown: (leftover: Leftover) => Promise<boolean>): Promise<void>;
  close(): Promise<void>;
}

/** What a sweep has found, and would remove if no sandbox belongs to it. */
export interface Leftover {
  readonly sandboxId: SandboxId | null;
  readonly generation: Generation | null;
  /** `null` for a blank's slot that no thread has. */
  readonly threadKey: ThreadKey | null;
}
