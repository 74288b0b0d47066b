/**
 * The slots of this instance, found by thread and by sandbox. In memory only.
 *
 * Invariant: a slot is here exactly while it is established and not lost, so every slot found here is usable. All
 * indexes of a slot change together.
 */

import type { SandboxId, ThreadId, UserId } from "@sandlot/contract";
import type { Slot } from "./slot.ts";

export class Slots {
  // Two levels instead of one combined key, so that a lookup builds no string.
  readonly #byUser = new Map<UserId, Map<ThreadId, Slot>>();
  readonly #byId = new Map<SandboxId, Slot>();

  add(slot: Slot): void {
    const threads = this.#byUser.get(slot.user) ?? new Map<ThreadId, Slot>();
    this.#byUser.set(slot.user, threads.set(slot.thread, slot));
    this.#byId.set(slot.sandboxId, slot);
  }

  /** Removes exactly this slot; a later one of the same thread stays. */
  remove(slot: Slot): void {
    const threads = this.#byUser.get(slot.user);
    if (threads?.get(slot.thread) === slot) {
      threads.delete(slot.thread);
      if (threads.size === 0) this.#byUser.delete(slot.user);
    }
    if (this.#byId.get(slot.sandboxId) === slot) this.#byId.delete(slot.sandboxId);
  }

  byThread(user: UserId, thread: ThreadId): Slot | undefined {
    return this.#byUser.get(user)?.get(thread);
  }

  byId(sandboxId: SandboxId): Slot | undefined {
    return this.#byId.get(sandboxId);
  }

  held(): readonly Slot[] {
    return [...this.#byId.values()];
  }

  get size(): number {
    return this.#byId.size;
  }
}
