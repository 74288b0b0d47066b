/**
 * Workspaces that let go of a dead pod once its workspace has left: the pod object stays for its markers until then.
 */

import type { SandboxId } from "@sandlot/contract";
import type { WorkspaceSight, WorkspaceSpot, Workspaces } from "../../backend/backend.ts";

export class LettingGoWorkspaces implements Workspaces {
  readonly #inner: Workspaces;
  readonly #left: (sandboxId: SandboxId) => Promise<void>;
  readonly owners?: NonNullable<Workspaces["owners"]>;

  /** `left` is called after a slot may have become empty. */
  constructor(inner: Workspaces, left: (sandboxId: SandboxId) => Promise<void>) {
    this.#inner = inner;
    this.#left = left;
    if (inner.owners !== undefined) this.owners = inner.owners.bind(inner);
  }

  latestGeneration(onProblem?: (problem: string) => void): Promise<number> {
    return this.#inner.latestGeneration(onProblem);
  }

  look(spot: WorkspaceSpot): Promise<WorkspaceSight> {
    return this.#inner.look(spot);
  }

  moveIn(spot: WorkspaceSpot): Promise<void> {
    return this.#inner.moveIn(spot);
  }

  makeIn(spot: WorkspaceSpot): Promise<void> {
    return this.#inner.makeIn(spot);
  }

  moveHome(spot: WorkspaceSpot): Promise<void> {
    return this.#leaving(spot, () => this.#inner.moveHome(spot));
  }

  quarantine(spot: WorkspaceSpot): Promise<void> {
    return this.#leaving(spot, () => this.#inner.quarantine(spot));
  }

  purge(spot: WorkspaceSpot): Promise<void> {
    return this.#leaving(spot, () => this.#inner.purge(spot));
  }

  async #leaving({ sandboxId, place }: WorkspaceSpot, step: () => Promise<void>): Promise<void> {
    await step();
    if (place !== "home") await this.#left(sandboxId);
  }
}
