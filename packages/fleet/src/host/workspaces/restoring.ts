/**
 * The steps of restores and seeds on the workspace at home. Each is synchronous, under the thread's lock.
 *
 * Invariants
 * - While `restore.*` stands, the workspace is at home and no step but the restore's own uses it.
 * - A generation that a later one has overtaken changes nothing: the fence is looked at in every step.
 */

import { closeSync, openSync } from "node:fs";
import { SandlotError, type ThreadKey } from "@sandlot/contract";
import type { WorkspaceSpot } from "../../backend/backend.ts";
import { threadKeyOf } from "../../backend/labels.ts";
import { noRoomInOurWords } from "../../world/disk-trouble.ts";
import { draftName } from "../../world/drafts.ts";
import { OPEN_DIRECTORY } from "../descriptors.ts";
import { RESTORE } from "./fence.ts";
import type { Owner } from "./homes.ts";
import type { Moves } from "./moves.ts";
import type { DiskParts } from "./parts.ts";
import { type Account, moveTree } from "./tree.ts";

/** A workspace at home that is being changed. */
export interface HeldHome {
  /** Of `user-data`; the caller closes it. */
  readonly descriptor: number;
  readonly account: Account;
  /** A free path beside the workspace, on the same mount and out of every sandbox's reach. */
  readonly draft: string;
}

export class Restoring {
  readonly #parts: DiskParts;
  readonly #moves: Moves;

  constructor(parts: DiskParts, moves: Moves) {
    this.#parts = parts;
    this.#moves = moves;
  }

  /** Runs `work` under the thread's lock. */
  async locked<T>(owner: Owner, work: (thread: ThreadKey) => T): Promise<T> {
    const thread = threadKeyOf(owner.user, owner.thread);
    try {
      return await this.#parts.locks.hold([thread], () => work(thread));
    } catch (error) {
      throw noRoomInOurWords(error, `home:${thread}`);
    }
  }

  /** From here on nothing else uses the workspace. A thread without one gets an empty one. */
  begin(spot: WorkspaceSpot, checkpoint: string): Promise<HeldHome> {
    const { homes, layout, world } = this.#parts;
    return this.locked(spot, (thread) => {
      homes.checkFence(thread, spot);
      if (!homes.has(thread)) {
        const slot = homes.slotOf(thread);
        const sandboxId = spot.sandboxId;
        if (this.#moves.tenancy(slot, thread) !== null)
          throw new SandlotError("sandbox_in_use", { sandboxId, holders: ["its own processes"] });
        homes.open(thread, spot);
        this.#moves.haveHome(thread, homes.lastUse(thread));
      }
      // Repaired: a sandbox may have closed its workspace to its own account.
      homes.ready(thread);
      RESTORE.write(layout.home(thread), { checkpoint, generation: spot.generation });
      return this.#held(thread, layout.userData(thread), draftName(world));
    });
  }

  /** A batch of changes: `work` runs only while this generation is still the latest, and its restore stands. */
  step(spot: WorkspaceSpot, checkpoint: string, work: () => void): Promise<void> {
    const { homes, layout } = this.#parts;
    return this.locked(spot, (thread) => {
      homes.checkFence(thread, spot);
      if (RESTORE.read(layout.home(thread))?.checkpoint !== checkpoint)
        throw new SandlotError("sandbox_in_use", { sandboxId: spot.sandboxId, holders: ["another restore"] });
      work();
    });
  }

  /** The files are as the checkpoint has them. */
  end(spot: WorkspaceSpot): Promise<void> {
    const { homes, layout } = this.#parts;
    return this.locked(spot, (thread) => {
      homes.checkFence(thread, spot);
      // Directories that every workspace has may be missing in an older checkpoint.
      homes.ready(thread);
      RESTORE.drop(layout.home(thread));
    });
  }

  /** An empty workspace beside the home of a thread that has none: `thread_exists` otherwise. */
  beginSeed(to: Owner): Promise<HeldHome & { readonly path: string }> {
    const { homes, world } = this.#parts;
    return this.locked(to, (thread) => {
      this.#checkFree(thread, to);
      homes.open(thread, to);
      const path = homes.aside(thread, draftName(world));
      return { ...this.#held(thread, path, draftName(world)), path };
    });
  }

  /** Moves a complete seed home, and runs `commit` in the same step. */
  async endSeed(to: Owner, path: string, commit: () => void = () => {}): Promise<void> {
    const { homes, layout } = this.#parts;
    const thread = await this.locked(to, (key) => {
      this.#checkFree(key, to);
      homes.fence(key, homes.lastUse(key), "home");
      commit();
      moveTree(path, layout.userData(key));
      homes.ready(key);
      return key;
    });
    await homes.sync(thread);
  }

  /** Removes a draft that did not become anything. */
  async drop(owner: Owner, path: string): Promise<void> {
    const thread = threadKeyOf(owner.user, owner.thread);
    this.#parts.trash.throwAway(path, thread);
    await this.#parts.trash.empty(thread);
  }

  /** A free name in the trash of a thread. */
  trashEntry(thread: ThreadKey): string {
    return this.#parts.trash.entry(thread);
  }

  emptyTrash(thread: ThreadKey): Promise<void> {
    return this.#parts.trash.empty(thread);
  }

  #checkFree(thread: ThreadKey, to: Owner): void {
    const { homes } = this.#parts;
    if (homes.has(thread) || this.#moves.tenancy(homes.slotOf(thread), thread) !== null)
      throw new SandlotError("thread_exists", { thread: to.thread });
  }

  #held(thread: ThreadKey, path: string, draft: string): HeldHome {
    const descriptor = openSync(path, OPEN_DIRECTORY);
    try {
      const account = this.#parts.owners.ofFiles(thread, descriptor);
      const { layout } = this.#parts;
      return { descriptor, account, draft: `${layout.home(thread)}/${draft}` };
    } catch (error) {
      closeSync(descriptor);
      throw error;
    }
  }
}
