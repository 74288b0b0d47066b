/**
 * Workspaces of pods: how each mode of `kubernetes.workspaces` takes part in making and removing a sandbox.
 *
 *   step 1 of making      prepare    what must exist before the pod does: a blank's slot directory, a thread's claim
 *   step 6 of making      fence      the store has confirmed the maker, and nothing runs yet: from here on an earlier
 *                                    generation can no longer use the workspace
 *   proof that it is dead leave      removes the slot of a sandbox, unless a workspace is in it
 *
 * Rules for every implementation
 * - `prepare`, `fence` and `leave` are idempotent: an answer that was lost is asked for again.
 * - `fence` rejects with `stale_generation` when a later generation has used the workspace.
 * - A workspace that is in a slot keeps the dead pod object and its markers. The step that takes the workspace out
 *   (`moveHome`, `purge`, `quarantine`) calls `onLeft` when the slot is gone; the backend then lets go of the pod.
 */

import type { SandboxId } from "@sandlot/contract";
import type { Created, CreateSpec, Place, Workspaces } from "../../../backend/backend.ts";
import type { HostWorkspaces } from "../../../backend/host-workspaces.ts";

export interface PodWorkspaces {
  /** The contract's single steps. */
  readonly workspaces: Workspaces;
  /** Whether a running pod sees a workspace that is moved into its slot. */
  readonly lateBinding: boolean;
  prepare(spec: CreateSpec, signal: AbortSignal): Promise<PodVolumes>;
  fence(spec: CreateSpec, signal: AbortSignal): Promise<Created["workspace"]>;
  /** `occupied`: a workspace is in the slot, so the dead pod and its markers must stay. */
  leave(object: SlotOf, signal: AbortSignal): Promise<"left" | "occupied">;
  /** Absent where this process cannot reach the files. */
  hostWorkspaces?(): Promise<HostWorkspaces>;
  close(): Promise<void>;
}

/** A sandbox and where its workspace is mounted from. */
export interface SlotOf {
  readonly sandboxId: SandboxId;
  /** The generation it was made as. */
  readonly generation: number;
  readonly place: Place;
}

/** Called when a slot is gone, with the sandbox it belonged to. A rejection is retried by the next round of the reconciler. */
export type OnLeft = (slot: SlotOf) => Promise<void>;

/** What the workspace adds to a pod, in the words of the Kubernetes API. */
export interface PodVolumes {
  readonly place: Place;
  readonly volumes: readonly object[];
  readonly mounts: readonly object[];
  /** The account of the pod; absent: the configured one. */
  readonly account?: { readonly uid: number; readonly gid: number };
  /** Never for a claim that sandboxes share: some drivers then change the owner of every file. */
  readonly fsGroup?: number;
  /** Where the home directory is, when it is kept with the workspace. */
  readonly home?: string;
}
