/**
 * Workspaces of threads whose files are at a provisioner. It keeps them by the name of the thread, so a thread's next
 * sandbox has them; the fleet's home only knows which threads have some (`records.ts`).
 *
 * - A workspace is always at home: there are no slots, because nothing can be mounted into a running sandbox from here.
 * - A provisioner has no way to remove files. A purge makes a sandbox of the thread, removes everything in it, looks
 *   that nothing is left, and ends it.
 */

import { SandlotError } from "@sandlot/contract";
import type { WorkspaceSight, WorkspaceSpot, Workspaces } from "../../backend/backend.ts";
import { threadKeyOf } from "../../backend/labels.ts";
import type { RemoteRecords } from "./records.ts";

/** Removes the files of a thread at the provisioner. */
export type Wipe = (threadKey: string, spot: WorkspaceSpot) => Promise<void>;

export class RemoteWorkspaces implements Workspaces {
  readonly #records: RemoteRecords;
  readonly #wipe: Wipe;

  constructor(records: RemoteRecords, wipe: Wipe) {
    this.#records = records;
    this.#wipe = wipe;
  }

  async owners() {
    return (await this.#records.threads()).map(({ user, thread }) => ({ user, thread }));
  }

  async latestGeneration(): Promise<number> {
    return Math.max(0, ...(await this.#records.threads()).map(({ generation }) => generation));
  }

  async look({ user, thread, generation }: WorkspaceSpot): Promise<WorkspaceSight> {
    const known = await this.#records.thread(threadKeyOf(user, thread));
    return { home: known !== null, slot: false, stale: known !== null && known.generation > generation };
  }

  moveIn(): Promise<void> {
    return Promise.reject(noSlots());
  }

  makeIn(): Promise<void> {
    return Promise.reject(noSlots());
  }

  /** It is there. */
  async moveHome(): Promise<void> {}

  /** There is no slot whose content could be set aside. */
  async quarantine(): Promise<void> {}

  async purge(spot: WorkspaceSpot): Promise<void> {
    const threadKey = threadKeyOf(spot.user, spot.thread);
    const known = await this.#records.thread(threadKey);
    if (known === null || known.generation > spot.generation) return;
    await this.#wipe(threadKey, spot);
    await this.#records.forgetThread(threadKey);
  }
}

export function noSlots(): SandlotError {
  return new SandlotError("capability_missing", {
    ...{ backend: "remote", capability: "late-binding", neededBy: "a blank sandbox" },
  });
}
