/**
 * Slots on a shared volume: what blanks mount at `/mnt`, and which thread's workspace is in which.
 *
 * Invariants
 * - A slot's name has sandbox id and generation and is never used again. A sandbox reaches only the slot's `mnt`, and
 *   may do there whatever it likes: it runs as the same account.
 * - `s/<slot>` exists only while its sandbox may run. Releasing it is one rename to `released/`, so a workspace that is
 *   sent to it afterwards misses its target: a slot is searched for a workspace only when none can arrive any more.
 * - A workspace is known by its inode, never by its name.
 * - Nothing is removed with a slot but scaffolding. Anything else goes to quarantine.
 */

import { chmod, mkdir, readdir, rename, symlink, unlink } from "node:fs/promises";
import { join } from "node:path";
import { SandlotError, type ThreadKey } from "@sandlot/contract";
import { ACP_LINK, ACP_TARGET, parseSlotName, USER_DATA } from "../../../../host/workspaces/layout.ts";
import type { Quarantine } from "../../../../host/workspaces/quarantine.ts";
import type { Trash } from "../../../../host/workspaces/trash.ts";
import { isMissing } from "../../../../world/disk-trouble.ts";
import type { World } from "../../../../world/world.ts";
import { removeBare } from "./bare-tree.ts";
import { findInode } from "./find-inode.ts";
import { freshNames, ifThere, isTaken, record, refresh, statOrNull } from "./fresh-names.ts";
import { PASSABLE, parseTenant, type SlotTenant, tenantName, type VolumeLayout } from "./layout.ts";

export type SlotState = "open" | "released" | "absent";

export interface SlotParts {
  readonly layout: VolumeLayout;
  readonly quarantine: Quarantine;
  readonly trash: Trash;
  readonly world: World;
}

export class VolumeSlots {
  readonly #layout: VolumeLayout;
  readonly #quarantine: Quarantine;
  readonly #trash: Trash;
  readonly #world: World;

  constructor({ layout, quarantine, trash, world }: SlotParts) {
    this.#layout = layout;
    this.#quarantine = quarantine;
    this.#trash = trash;
    this.#world = world;
  }

  /** Made aside and renamed into place, so that no pod mounts half of it. Again is fine, while the slot is empty. */
  async make(slot: string): Promise<void> {
    const before = await this.state(slot);
    if (before === "open" && (await this.tenant(slot)) === null) return;
    if (before !== "absent") throw new SandlotError("file_exists", { path: `slot:${slot}` });
    const nonce = this.#world.randomHex(8);
    const draft = this.#layout.draft(nonce);
    await mkdir(draft);
    await chmod(draft, PASSABLE);
    await mkdir(join(draft, "mnt"), 0o700);
    await symlink(ACP_TARGET, join(draft, "mnt", ACP_LINK));
    await record(join(draft, `made.${nonce}`));
    try {
      await rename(draft, this.#layout.slot(slot));
    } catch (error) {
      // Its answer may have been lost; or another call has made the slot.
      if (isMissing(error) && (await statOrNull(join(this.#layout.slot(slot), `made.${nonce}`))) !== null) return;
      this.#trash.throwAway(draft, "draft");
      if (!isTaken(error)) throw error;
      if ((await this.tenant(slot)) !== null) throw new SandlotError("file_exists", { path: `slot:${slot}` });
    }
  }

  async state(slot: string): Promise<SlotState> {
    if ((await statOrNull(this.#layout.slot(slot))) !== null) return "open";
    return (await statOrNull(this.#layout.releasedSlot(slot))) === null ? "absent" : "released";
  }

  /** Nothing of the sandbox runs any more: from now on nothing arrives. */
  async release(slot: string): Promise<SlotState> {
    try {
      await rename(this.#layout.slot(slot), this.#layout.releasedSlot(slot));
      return "released";
    } catch (error) {
      if (isMissing(error)) return this.state(slot);
      throw error;
    }
  }

  async names(state: "open" | "released"): Promise<readonly string[]> {
    const names = await readdir(state === "open" ? this.#layout.slots : this.#layout.released);
    return names.filter((name) => parseSlotName(name) !== null);
  }

  /** Refuses a slot that cannot take a workspace. */
  async checkFree(slot: string | null): Promise<string> {
    if (slot === null || (await this.state(slot)) !== "open")
      throw new SandlotError("file_not_found", { path: `slot:${slot}` });
    if ((await statOrNull(this.#layout.arrival(slot))) !== null || (await this.tenant(slot)) !== null)
      throw new SandlotError("file_exists", { path: `slot:${slot}/${USER_DATA}` });
    return slot;
  }

  /** Before a workspace is sent. `file_not_found` when the slot was released. */
  async announce(slot: string, tenant: Omit<SlotTenant, "name">): Promise<void> {
    try {
      await record(join(this.#layout.slot(slot), tenantName(tenant)));
    } catch (error) {
      if (isMissing(error)) throw new SandlotError("file_not_found", { path: `slot:${slot}` });
      throw error;
    }
  }

  /** The workspace that really is in the slot, of this thread or of any. */
  async tenant(slot: string, thread?: ThreadKey): Promise<SlotTenant | null> {
    const directory = await this.#directory(slot);
    if (directory === null) return null;
    for (const name of (await freshNames(directory, this.#world.wallMs())) ?? []) {
      const tenant = parseTenant(name);
      if (tenant === null || (thread !== undefined && tenant.thread !== thread)) continue;
      if ((await this.#reachIn(directory, tenant.inode, async () => true)) === true) return tenant;
    }
    return null;
  }

  /** Calls `use` with a path to the tenant's workspace, anywhere in the slot; `undefined` when it is not there. */
  async reach<T>(
    slot: string,
    { inode }: Pick<SlotTenant, "inode">,
    use: (path: Buffer) => Promise<T>,
  ): Promise<T | undefined> {
    const directory = await this.#directory(slot);
    return directory === null ? undefined : this.#reachIn(directory, inode, use);
  }

  /** Moves everything that the sandbox had in its slot aside, for a person. */
  async setAside(slot: string, reason: string): Promise<void> {
    const directory = await this.#directory(slot);
    if (directory === null) return;
    const mnt = join(directory, "mnt");
    if (!(await ownerMayAll(mnt))) return;
    const facts = { slot, user: null, thread: null, reason };
    await ifThere(async () => this.#quarantine.put(mnt, facts));
  }

  /** Removes a released slot without a workspace. False while a workspace is in it. */
  async dropIfOver(slot: string): Promise<boolean> {
    if ((await this.state(slot)) === "open" || (await this.tenant(slot)) !== null) return false;
    const directory = this.#layout.releasedSlot(slot);
    if (!(await removeBare(join(directory, "mnt"))))
      await this.setAside(slot, "it was in the slot and is no workspace");
    for (const name of (await freshNames(directory, this.#world.wallMs())) ?? [])
      if (parseTenant(name) !== null || name.startsWith("made.")) await ifThere(() => unlink(join(directory, name)));
    await removeBare(directory);
    return true;
  }

  async #directory(slot: string): Promise<string | null> {
    const state = await this.state(slot);
    if (state === "absent") return null;
    return state === "open" ? this.#layout.slot(slot) : this.#layout.releasedSlot(slot);
  }

  async #reachIn<T>(directory: string, inode: bigint, use: (path: Buffer) => Promise<T>): Promise<T | undefined> {
    const mnt = join(directory, "mnt");
    // A client may remember that the workspace's name was missing.
    if (!(await refresh(mnt, this.#world.wallMs())) || !(await ownerMayAll(mnt))) return undefined;
    const top = await statOrNull(mnt);
    if (top === null) return undefined;
    const usual = join(mnt, USER_DATA);
    const stats = await statOrNull(usual);
    if (stats?.isDirectory() === true && stats.ino === inode && stats.dev === top.dev) return use(Buffer.from(usual));
    return findInode(mnt, { inode, device: top.dev }, use);
  }
}

/** A sandbox may remove the rights to its own `/mnt`. Its name is the fleet's. False when it is not there. */
async function ownerMayAll(mnt: string): Promise<boolean> {
  const stats = await statOrNull(mnt);
  if (stats === null) return false;
  if ((stats.mode & 0o700n) === 0o700n) return true;
  return ifThere(() => chmod(mnt, 0o700));
}
