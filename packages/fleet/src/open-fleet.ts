/**
 * Opening a fleet: from what a user configured to a fleet on the real machine. Stores and backends are imported when
 * they are used, so that nobody pays for, or needs to install, what they did not configure.
 */

import type { ThreadKey } from "@sandlot/contract";
import { assembleFleet } from "./assemble-fleet.ts";
import type { Backend } from "./backend/backend.ts";
import type { HostWorkspaces } from "./backend/host-workspaces.ts";
import type { FleetConfig } from "./config/fleet-config.ts";
import { resolveSettings } from "./config/resolve-settings.ts";
import type { Settings } from "./config/settings.ts";
import type { Fleet } from "./fleet.ts";
import type { Store } from "./store/store.ts";
import { systemWorld } from "./world/system-world.ts";
import type { World } from "./world/world.ts";

export { assembleFleet } from "./assemble-fleet.ts";

/** Opens a fleet. Rejects with `config_invalid`, `store_corrupt` or `store_unavailable`, leaving nothing half-made. */
export async function openFleet(config: FleetConfig = {}): Promise<Fleet> {
  return (await openFleetAndHost(config)).fleet;
}

export interface FleetAndHost {
  readonly fleet: Fleet;
  readonly settings: Settings;
  /** The workspaces, where they lie on this host's disk. */
  readonly hostWorkspaces: HostWorkspaces | null;
}

/** The same with what a gateway beside it uses. */
export async function openFleetAndHost(config: FleetConfig = {}): Promise<FleetAndHost> {
  const settings = resolveSettings(config, process.env);
  const world = systemWorld();
  const store = await openStore(settings, world);
  try {
    const backend = await openBackend(settings, world);
    const hostWorkspaces = settings.backend === "memory" ? null : await workspacesOnDisk(backend, settings, world);
    return { fleet: await assembleFleet({ settings, world, store, backend }), settings, hostWorkspaces };
  } catch (error) {
    await store.close();
    throw error;
  }
}

async function workspacesOnDisk(
  backend: Backend,
  { blueprints }: Settings,
  world: World,
): Promise<HostWorkspaces | null> {
  const { DiskWorkspaces } = await import("./host/workspaces/disk-workspaces.ts");
  const { workspaces } = backend;
  if (!(workspaces instanceof DiskWorkspaces)) return null;
  const { hostWorkspaces } = await import("./host/workspaces/host-workspaces.ts");
  const budgeted = Object.values(blueprints).some(
    ({ blueprint: { limits } }) => limits.diskBytes !== undefined || limits.filesMax !== undefined,
  );
  const budgetOf = (thread: ThreadKey) => backend.budgetOf?.(thread) ?? null;
  return hostWorkspaces(workspaces, world, budgeted ? { budgetOf } : {});
}

async function openStore({ store }: Settings, world: World): Promise<Store> {
  if (store.type === "sqlite") {
    const { openSqliteStore } = await import("./store/sqlite/sqlite-store.ts");
    return openSqliteStore({ path: store.path, world });
  }
  const { MemoryStore, newMemoryTables } = await import("./store/memory/memory-store.ts");
  return new MemoryStore(newMemoryTables(world));
}

async function openBackend(settings: Settings, world: World): Promise<Backend> {
  const { fleetId, home, backend } = settings;
  if (backend === "local") {
    const { createLocalBackend } = await import("./backends/local/backend.ts");
    return createLocalBackend({ settings, world });
  }
  if (backend === "docker") {
    const { openDockerBackend } = await import("./backends/docker/backend.ts");
    return openDockerBackend({ settings, world });
  }
  const { createMemoryBackend } = await import("./backends/memory/backend.ts");
  const { MemoryEngine } = await import("./backends/memory/engine.ts");
  return createMemoryBackend({ fleetId, engine: MemoryEngine.shared(home), world });
}
