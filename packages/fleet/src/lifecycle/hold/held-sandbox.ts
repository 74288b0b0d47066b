/** The sandbox of a slot without a lease, for `fleet.get`. A use of it never restarts a sandbox. */

import type { Sandbox } from "@sandlot/contract";
import { guarded } from "./guarded-sandbox.ts";
import { type Slot, sandboxLost, staleGeneration } from "./slot.ts";

/** `current` finds the thread's present slot, to tell a dead sandbox from a superseded one. */
export function heldSandbox(slot: Slot, current: () => Slot | undefined): Sandbox {
  const present = async (): Promise<Sandbox> => {
    if (slot.isOpen()) return slot.sandbox;
    const successor = current();
    if (successor !== undefined || slot.loss === null) throw staleGeneration(slot, successor?.generation ?? null);
    throw sandboxLost(slot, await slot.loss);
  };
  return guarded(slot.sandboxId, slot.generation, {
    use: async (use) => use(await present()),
    async *stream(open) {
      yield* open(await present());
    },
    check: () => undefined,
  });
}
