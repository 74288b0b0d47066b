/**
 * A list of sandboxes from the store and what the backend shows without being opened, without a fleet: opening one takes most of the time of a
 * command that only looks.
 *
 * Invariant: the list is given only where a fleet would give the same and would have nothing to do: every session is of a
 * process that is not known to be dead, all that is being made or ended has one, and store and engine agree. Otherwise the
 * answer is `null`, and the command opens a fleet, which clears up what it finds.
 */

import type { SandboxSummary } from "@sandlot/contract";
import type { Backend } from "../backend/backend.ts";
import { neededCapabilities } from "../config/capabilities.ts";
import type { FleetConfig } from "../config/fleet-config.ts";
import { backendEntry, REGISTRY, sectionOf, storeEntry } from "../config/registry.ts";
import { resolveSettings } from "../config/resolve-settings.ts";
import type { Settings } from "../config/settings.ts";
import type { Environment } from "../config/variables.ts";
import { auditFleet } from "../inspect/audit.ts";
import { summarize } from "../inspect/summary.ts";
import type { Store } from "../store/store.ts";
import { systemWorld } from "../world/system-world.ts";
import type { World } from "../world/world.ts";

export async function quickLook(
  config: FleetConfig,
  environment: Environment,
): Promise<readonly SandboxSummary[] | null> {
  const settings = resolveSettings({ ...config, pool: {} }, environment);
  const storing = storeEntry(REGISTRY, settings.store);
  if (!storing.exists(settings.store)) return null;
  const world = systemWorld();
  const entry = backendEntry(REGISTRY, settings.backend);
  const backend = await entry.look?.({ fleet: settings, section: sectionOf(settings, entry), world });
  if (backend == null || !suffices(backend.capabilities, settings)) return null;
  const store = await storing.open(settings.store, world);
  try {
    if (!(await isSettled(store, world))) return null;
    const findings = await auditFleet({ store, backend, isOurs: () => true }, new AbortController().signal);
    return findings.length === 0 ? (await store.list()).map(summarize) : null;
  } finally {
    await store.close();
  }
}

/** Whether a fleet with these settings could be opened at all, judged by the settings alone. */
function suffices(capabilities: Backend["capabilities"], { blueprints }: Settings): boolean {
  return Object.values(blueprints).every(({ blueprint }) =>
    neededCapabilities(blueprint).every((capability) => capabilities.has(capability)),
  );
}

async function isSettled(store: Store, world: World): Promise<boolean> {
  // Which records of a shared store are on this host's engine, only a fleet knows.
  if (store.isShared || (await store.meta()).recovering) return false;
  const sessions = await store.sessions();
  if (sessions.some(({ identity }) => world.processLiveness(identity) === "dead")) return false;
  const alive = new Set(sessions.map(({ instance }) => instance));
  return (await store.list({ acting: true })).every(({ actor }) => actor !== null && alive.has(actor));
}
