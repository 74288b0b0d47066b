/**
 * `workspaces: none`: a workspace is a directory of its pod, and ends with it. Nothing is shared, so nothing has to be
 * kept apart; a blank's directory is there from its start, and binding it only notes whose it is.
 */

import type { Created, WorkspaceSight, WorkspaceSpot } from "../../../backend/backend.ts";
import { slotOf } from "../pod/names.ts";
import type { PodSecrets } from "../pod/pod-secret.ts";
import type { PodSpec, PodWorkspaces } from "./pod-workspaces.ts";

type Without = Omit<PodWorkspaces, "prepare"> & { prepare(spec: PodSpec): Promise<null> };

export class NoWorkspaces implements Without {
  readonly hasLateBinding = true;
  readonly files = null;
  readonly #secrets: PodSecrets;

  constructor(secrets: PodSecrets) {
    this.#secrets = secrets;
  }

  async latestGeneration(): Promise<number> {
    return 0;
  }

  async look({ sandboxId, generation, place }: WorkspaceSpot): Promise<WorkspaceSight> {
    const slot = place !== "home" && (await this.#secrets.isBound(sandboxId, generation));
    return { home: false, slot, stale: false };
  }

  async moveIn(spot: WorkspaceSpot): Promise<void> {
    await this.makeIn(spot);
  }

  async makeIn({ sandboxId, generation }: WorkspaceSpot): Promise<void> {
    await this.#secrets.noteBound(sandboxId, generation);
  }

  async moveHome(spot: WorkspaceSpot): Promise<void> {
    await this.purge(spot);
  }

  async quarantine(spot: WorkspaceSpot): Promise<void> {
    await this.purge(spot);
  }

  async purge({ sandboxId, generation }: WorkspaceSpot): Promise<void> {
    await this.#secrets.dropBound(sandboxId, generation);
  }

  async prepare(_spec: PodSpec): Promise<null> {
    return null;
  }

  async fence({ marker }: PodSpec): Promise<Created["workspace"]> {
    return marker === null ? "none" : "new";
  }

  async release(): Promise<"dropped"> {
    return "dropped";
  }

  async isOccupied(): Promise<boolean> {
    return false;
  }

  arrival(): null {
    return null;
  }

  async sweep(): Promise<void> {}

  async close(): Promise<void> {}
}

/** Where a pod's workspace is: its home, or the slot of a blank. */
export function placeOf({ labels, marker }: PodSpec) {
  return marker === null ? slotOf(labels) : ("home" as const);
}
