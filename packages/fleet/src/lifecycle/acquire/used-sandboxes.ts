/**
 * The sandboxes that had a lease here, lately. A sandbox is not new to its thread after that, whatever its record says: the
 * release that tells the store may be on its way, or lost.
 */

import type { Generation, SandboxId } from "@sandlot/contract";

interface Hold {
  readonly sandboxId: SandboxId;
  readonly generation: Generation;
}

/** More than a store is behind with. For those that were forgotten, the record decides. */
const USED_MAX = 10_000;

export class UsedSandboxes {
  readonly #generations = new Map<SandboxId, Generation>();

  /** A hold of it ends. Answers whether the sandbox was used: under this hold, or under an earlier one. */
  note(hold: Hold, isUsed: boolean): boolean {
    if (!isUsed) return this.has(hold);
    this.#generations.delete(hold.sandboxId);
    this.#generations.set(hold.sandboxId, hold.generation);
    const [oldest] = this.#generations.keys();
    if (oldest !== undefined && this.#generations.size > USED_MAX) this.#generations.delete(oldest);
    return true;
  }

  has({ sandboxId, generation }: Hold): boolean {
    return this.#generations.get(sandboxId) === generation;
  }
}
