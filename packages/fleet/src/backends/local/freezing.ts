/**
 * Freezes a sandbox with a control group of its own: its daemon, its commands and everything that they have started. The
 * kernel thaws it when this process dies (`host/limits/disk/freezer.ts`).
 */

import { SandlotError } from "@sandlot/contract";
import type { Thaw } from "../../backend/backend.ts";
import { once } from "../../backend/frozen.ts";
import { canFreeze, freeze } from "../../host/limits/index.ts";
import { knowsDescendants, livenessOf, withDescendants } from "../../host/process-table.ts";
import type { World } from "../../world/world.ts";
import type { LocalObject } from "./objects/object-store.ts";

const RETRY_AFTER_MS = 1_000;
const STILL: Thaw = async () => true;

/** Without a pid namespace a process can leave its parent, and would not be found. */
export function canFreezeSandboxes(isUnsafe: boolean, world: World): boolean {
  return !isUnsafe && knowsDescendants() && canFreeze(world);
}

export async function frozenSandbox(object: LocalObject | null, world: World): Promise<Thaw> {
  const init = object?.process?.init ?? null;
  if (object === null || init === null) return STILL;
  const isDead = () => livenessOf(init) === "dead";
  const find = () => (isDead() ? [] : withDescendants(init.pid));
  const held = await freeze(find, world);
  if (held !== null) return once(async () => held.release() || isDead());
  if (isDead()) return STILL;
  const { sandboxId } = object.record.labels;
  const problem = "its processes did not stand still";
  throw new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: RETRY_AFTER_MS });
}
