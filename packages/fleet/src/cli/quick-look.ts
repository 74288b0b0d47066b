/**
 * A list of sandboxes from the store and the directory of objects, without a fleet: opening one takes most of the time of a
 * command that only looks.
 *
 * Invariant: the list is given only where a fleet would give the same and would have nothing to do: every session is of a
 * process that is not known to be dead, all that is being made or ended has one, and store and engine agree. Otherwise the
 * answer is `null`, and the command opens a fleet, which clears up what it finds.
 */

import { existsSync } from "node:fs";
import type { SandboxSummary } from "@sandlot/contract";
import type { Capability } from "../backend/backend.ts";
import { neededCapabilities } from "../config/capabilities.ts";
import type { FleetConfig } from "../config/fleet-config.ts";
import { resolveSettings } from "../config/resolve-settings.ts";
import type { Settings } from "../config/settings.ts";
import type { Environment } from "../config/variables.ts";
import { auditFleet } from "../inspect/audit.ts";
import { summarize } from "../inspect/summary.ts";
import type { Store } from "../store/store.ts";
import { systemWorld } from "../world/system-world.ts";
import type { World } from "../world/world.ts";

/** What bubblewrap's sandboxes have on every machine. */
const ALWAYS: ReadonlySet<Capability> = new Set(["limits", "mounts", "network"]);

export async function quickLook(
  config: FleetConfig,
  environment: Environment,
): Promise<readonly SandboxSummary[] | null> {
  const settings = resolveSettings({ ...config, pool: {} }, environment);
  if (!isPlain(settings) || settings.store.type !== "sqlite" || !existsSync(settings.store.path)) return null;
  const world = systemWorld();
  const { openSqliteStore } = await import("../store/sqlite/sqlite-store.ts");
  const { lookAtObjects } = await import("../backends/local/look.ts");
  const store = await openSqliteStore({ path: settings.store.path, world });
  try {
    if (!(await isSettled(store, world))) return null;
    const findings = await auditFleet({ store, backend: lookAtObjects(settings, world) }, new AbortController().signal);
    return findings.length === 0 ? (await store.list()).map(summarize) : null;
  } finally {
    await store.close();
  }
}

/** Whether a fleet with these settings could be opened at all, seen from the settings alone. */
function isPlain({ backend, local, blueprints }: Settings): boolean {
  if (backend !== "local" || local.isolation === "unsafe-process") return false;
  return Object.values(blueprints).every(({ blueprint }) =>
    neededCapabilities(blueprint).every((capability) => ALWAYS.has(capability)),
  );
}

async function isSettled(store: Store, world: World): Promise<boolean> {
  if ((await store.meta()).recovering) return false;
  const sessions = await store.sessions();
  if (sessions.some(({ identity }) => world.processLiveness(identity) === "dead")) return false;
  const alive = new Set(sessions.map(({ instance }) => instance));
  return (await store.list({ acting: true })).every(({ actor }) => actor !== null && alive.has(actor));
}
