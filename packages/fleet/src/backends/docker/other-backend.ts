/**
 * Sandboxes of this fleet that the local backend has made, before the fleet was configured for an engine.
 *
 * They are not used from here: what the local backend enforces around a sandbox (its limits, its way out) would be missing. But
 * they can be ended, and it can be told whether they live, so that their threads come over with their workspaces: whoever
 * acquires such a thread hears what is in the way and what to do about it; once the old sandbox has been ended, by somebody or
 * by itself because nobody renews it, the next acquire makes one here.
 */

import { basename, dirname } from "node:path";
import { type EngineRef, type FleetId, type SandboxId, SandlotError } from "@sandlot/contract";
import type { Backend } from "../../backend/backend.ts";
import { DEFAULTS } from "../../config/defaults.ts";
import type { Settings } from "../../config/settings.ts";
import type { Layout, ObjectName } from "../../host/layout.ts";
import type { World } from "../../world/world.ts";
import { parseRef } from "../local/objects/engine-ref.ts";

const RETRY_AFTER_MS = 5_000;

/** The name of the object, when the local backend has made it; `null` otherwise. */
export function localName(ref: EngineRef): ObjectName | null {
  return parseRef(ref)?.name ?? null;
}

/** The local backend in this fleet's home, for one call. It renews nobody, so what nobody wants still ends by itself. */
export async function withLocal<T>(
  { root }: Pick<Layout, "root">,
  accountIds: Settings["accountIds"],
  world: World,
  call: (backend: Backend) => Promise<T>,
): Promise<T> {
  const { createLocalBackend } = await import("../local/backend.ts");
  const fleet = { home: dirname(root), fleetId: basename(root) as FleetId };
  const settings = { ...fleet, local: DEFAULTS.local, skillsPath: null, orphanTimeoutMs: 0, accountIds };
  const backend = createLocalBackend({ settings, world });
  try {
    return await call(backend);
  } finally {
    await backend.close();
  }
}

export function madeByLocal(sandboxId: SandboxId): SandlotError {
  const problem =
    "the local backend has made it, and this fleet is configured for docker now; end it with `sandlot rm`, which keeps the " +
    "thread's workspace, or set `backend` to local again";
  return new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: RETRY_AFTER_MS });
}
