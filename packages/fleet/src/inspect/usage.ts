/**
 * What a thread's sandbox uses now. Looking takes no lease, so that an open page neither wakes a sandbox nor keeps it:
 * one that nothing holds has no figures.
 */

import type { UsageSample } from "@sandlot/contract";
import type { Backend } from "../backend/backend.ts";
import type { WorkspaceOwner } from "../backend/checkpoints.ts";
import type { Slots } from "../lifecycle/hold/slots.ts";
import type { SandboxRecord } from "../store/record.ts";
import type { Store } from "../store/store.ts";
import type { World } from "../world/world.ts";
import { summarize } from "./summary.ts";

export interface UsageParts {
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly slots: Slots;
  readonly isOurs: (record: SandboxRecord) => boolean;
}

export async function usageOf(parts: UsageParts, owner: WorkspaceOwner, signal: AbortSignal): Promise<UsageSample> {
  const { world, store, backend, slots, isOurs } = parts;
  const at = world.wallMs();
  const held = slots.byThread(owner.user, owner.thread);
  if (held?.isOpen()) return { at, state: "leased", usage: await held.sandbox.usage() };
  const record = await store.find(owner.user, owner.thread);
  if (record === null) return { at, state: "absent", usage: null };
  const { state } = summarize(record);
  if (record.state !== "ready" || state !== "leased" || !isOurs(record)) return { at, state, usage: null };
  // Another instance of this engine holds it, so this connection changes nothing for it.
  const { sandboxId, generation, token, ref } = record;
  const attachment = await backend.attach({ sandboxId, generation, token, ref }, signal);
  try {
    return { at, state, usage: await attachment.sandbox.usage() };
  } finally {
    await attachment.close();
  }
}
