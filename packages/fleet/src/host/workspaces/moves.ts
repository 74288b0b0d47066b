/**
 * Moves workspaces between homes and slots. Each method is synchronous and runs under the locks of its thread and slot,
 * which `disk-workspaces.ts` takes.
 */

import { lstatSync } from "node:fs";
import { join } from "node:path";
import { SandlotError, type ThreadKey } from "@sandlot/contract";
import { TENANT, type Tenant, type Use } from "./fence.ts";
import type { Identified } from "./homes.ts";
import { parseSlotName, USER_DATA } from "./layout.ts";
import type { DiskParts } from "./parts.ts";
import { moveTree } from "./tree.ts";

export class Moves {
  readonly #parts: DiskParts;

  constructor(parts: DiskParts) {
    this.#parts = parts;
  }

  /** The thread's workspace in the slot; `null` when it is not there. Another thread's does not count. */
  tenancy(slot: string | null, thread: ThreadKey): Tenant | null {
    const tenant = slot === null ? null : this.#parts.slots.tenant(slot);
    return tenant?.thread === thread ? tenant : null;
  }

  /** The slot, if a workspace can be put into it. */
  freeSlot(slot: string | null): string {
    const { slots } = this.#parts;
    if (slot === null || !slots.isOpen(slot)) throw new SandlotError("file_not_found", { path: `slot:${slot}` });
    if (!slots.isFree(slot)) throw new SandlotError("file_exists", { path: `slot:${slot}/${USER_DATA}` });
    return slot;
  }

  /** A workspace is never taken away while processes may use it. */
  checkReleased(slot: string): void {
    const sandboxId = parseSlotName(slot)?.sandboxId ?? slot;
    if (!this.#parts.slots.isReleased(slot))
      throw new SandlotError("sandbox_in_use", { sandboxId, holders: ["its own processes"] });
  }

  /** Puts a workspace into a free slot: recorded first, in the slot and at home, then moved. */
  putIn(thread: ThreadKey, use: Use, slot: string, { path, device, inode }: Identified): void {
    const { homes, layout } = this.#parts;
    TENANT.write(layout.slot(slot), { thread, generation: use.generation, device, inode });
    homes.fence(thread, use, slot);
    moveTree(path, join(layout.mnt(slot), USER_DATA));
  }

  /** Brings a tenant's workspace home, where there is none. */
  bringHome(thread: ThreadKey, use: Use, slot: string, tenant: Tenant): void {
    const { homes, layout, slots } = this.#parts;
    const home = layout.userData(thread);
    slots.reach(slot, tenant, (path) => moveTree(path, home));
    if (lstatSync(home, { bigint: true }).ino !== tenant.inode) {
      // Another directory was put in its place between the check and the move. It belongs to no thread.
      this.#parts.quarantine.put(home, { ...this.#facts(slot), reason: "it was put where a workspace had been" });
      throw new SandlotError("file_not_found", { path: `slot:${slot}` });
    }
    // The slot keeps its record of its former tenant, for anything else that is found in it.
    homes.fence(thread, use, "home");
  }

  /** Brings the workspace home if needed, for a sandbox that mounts it from there. Returns whether there was one. */
  haveHome(thread: ThreadKey, use: Use): boolean {
    const { homes, layout, slots } = this.#parts;
    const existing = homes.ready(thread) !== undefined;
    const slot = existing ? null : homes.slotOf(thread);
    const tenant = this.tenancy(slot, thread);
    if (slot !== null && tenant !== null && slots.isReleased(slot)) {
      // Its sandbox is gone and the workspace is still there: bring it home rather than start with an empty one.
      this.bringHome(thread, use, slot, tenant);
      return homes.ready(thread) !== undefined;
    }
    const made = existing ? null : homes.draft(thread);
    homes.fence(thread, use, "home");
    if (made !== null) moveTree(made.path, layout.userData(thread));
    return existing;
  }

  /** Takes a thread's workspace out of reach, wherever it is. */
  throwAway(thread: ThreadKey, slot: string | null): void {
    const { homes, layout, slots, trash } = this.#parts;
    for (const name of new Set([slot, homes.slotOf(thread)])) {
      const tenant = this.tenancy(name, thread);
      if (name === null || tenant === null) continue;
      this.checkReleased(name);
      slots.reach(name, tenant, (path) => trash.throwAway(path, thread));
      TENANT.drop(layout.slot(name));
    }
    homes.throwAway(thread);
  }

  /** Moves the whole content of the slot to quarantine. */
  setAside(slot: string, reason: string): void {
    this.#parts.quarantine.put(this.#parts.layout.mnt(slot), { ...this.#facts(slot), reason });
  }

  /** Removes a released slot without a workspace, and the markers beside it. Other content goes to quarantine. */
  dropIfOver(slot: string): boolean {
    const { layout, markers, slots, trash } = this.#parts;
    if (!slots.isReleased(slot) || slots.tenant(slot) !== null) return false;
    if (slots.hasContent(slot)) this.setAside(slot, "it was in the slot and is no workspace");
    const { sandboxId } = parseSlotName(slot) ?? {};
    const isLast = !slots.names().some((name) => name !== slot && parseSlotName(name)?.sandboxId === sandboxId);
    if (sandboxId !== undefined && isLast) markers.close(sandboxId);
    // Last: while the slot exists, it is listed and dropped again.
    trash.throwAway(layout.slot(slot), trashOwner(slot));
    return true;
  }

  #facts(slot: string): { slot: string; user: string | null; thread: string | null } {
    const tenant = TENANT.read(this.#parts.layout.slot(slot));
    const owner = tenant === null ? null : this.#parts.homes.owner(tenant.thread);
    return { slot, user: owner?.user ?? null, thread: owner?.thread ?? null };
  }
}

/** The name of a slot's remains in the trash. */
export function trashOwner(slot: string): string {
  return `slot-${slot}`;
}
