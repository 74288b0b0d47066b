/**
 * Opens a fleet on the real machine from the user's configuration. The registry imports a store or backend on first
 * use, so a fleet loads only the ones it is configured for.
 */

import { hostname } from "node:os";
import { join } from "node:path";
import { assembleFleet } from "./assemble-fleet.ts";
import type { Backend } from "./backend/backend.ts";
import { NO_OTHERS, type OtherBackends } from "./backend/entry.ts";
import type { HostWorkspaces } from "./backend/host-workspaces.ts";
import { MemoryTimelines } from "./backend/memory-timelines.ts";
import type { Timelines } from "./backend/timelines.ts";
import { choosePool } from "./config/default-pool.ts";
import type { FleetConfig } from "./config/fleet-config.ts";
import { backendEntry, REGISTRY, type Registry, sectionOf, storeEntry } from "./config/registry.ts";
import { resolveSettings } from "./config/resolve-settings.ts";
import type { Settings } from "./config/settings.ts";
import type { Fleet, SharedEntries } from "./fleet.ts";
import { StoreSteps } from "./observe/store-steps.ts";
import { EntryTimelines } from "./store/entry-timelines.ts";
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
  /** The workspaces, if they are on this host's disk. */
  readonly hostWorkspaces: HostWorkspaces | null;
  /** What the store's gateways share; `null` where the store is one host's. */
  readonly entries: SharedEntries | null;
  /** The steps of a store on the network; none of any other. */
  readonly storeSteps: StoreSteps;
}

export interface OpenOptions {
  readonly registry?: Registry;
  /** The advertised address of the gateway in this process. */
  readonly address?: string | undefined;
  /** Keeps a blank of the default blueprint ready where `pool` is not configured and the backend can. */
  readonly keepsBlank?: boolean | undefined;
}

/** Opens a fleet together with the parts that a gateway in this process uses. */
export async function openFleetAndHost(
  config: FleetConfig = {},
  { registry = REGISTRY, address, keepsBlank = false }: OpenOptions = {},
): Promise<FleetAndHost> {
  const configured = resolveSettings(config, process.env, undefined, registry);
  const world = systemWorld();
  const store = await storeEntry(registry, configured.store).open(configured.store, world);
  const storeSteps = new StoreSteps(store, world);
  try {
    const backend = await openWithEnvironments(configured, world, registry);
    const choice = keepsBlank ? choosePool(config.pool, configured, backend) : null;
    const settings = choice === null ? configured : { ...configured, pool: choice.pool };
    const hostWorkspaces = (await backend.hostWorkspaces?.()) ?? null;
    const advertised = address === undefined ? {} : { address };
    const poolBecause = choice === null ? {} : { poolBecause: choice.because };
    const timelines = await timelinesOf(settings, world, store, backend);
    const kept = timelines === null ? {} : { timelines };
    const fleet = await assembleFleet({ settings, world, store, backend, ...kept, ...advertised, ...poolBecause });
    return { fleet, settings, hostWorkspaces, entries: store.entries, storeSteps };
  } catch (error) {
    await store.close();
    throw error;
  }
}

/** Beside the workspaces; else in a store that hosts share, or in this host's home. `null`: none are wanted. */
async function timelinesOf(
  settings: Settings,
  world: World,
  { entries }: Pick<Store, "entries">,
  { name, timelines }: Backend,
): Promise<Timelines | null> {
  if (!settings.timeline.enabled) return null;
  if (timelines !== undefined) return timelines;
  if (entries !== null) return new EntryTimelines(entries, world);
  // Its threads end with the process.
  if (name === "memory") return new MemoryTimelines(world);
  const { homeTimelines } = await import("./host/timelines/home-timelines.ts");
  return homeTimelines(join(settings.home, settings.fleetId), world);
}

/** The backend that the settings name, whose sandboxes have the environments of their blueprints. */
async function openWithEnvironments(settings: Settings, world: World, registry: Registry): Promise<Backend> {
  const backend = await openBackend(settings, world, registry);
  if (Object.values(settings.blueprints).every(({ blueprint }) => blueprint.setup === undefined)) return backend;
  const { environmentsOf } = await import("./build-environment.ts");
  const { backendWithEnvironments } = await import("./environments/backend-with-environments.ts");
  const open = (its: Settings) => openBackend(its, world, registry);
  const environments = environmentsOf(settings, world, open, async () => backend);
  return backendWithEnvironments(backend, settings.blueprints, environments, world);
}

/** The backend that the settings name. */
export function openBackend(settings: Settings, world: World, registry: Registry = REGISTRY): Promise<Backend> {
  const entry = backendEntry(registry, settings.backend);
  const others = otherBackends(settings, world, registry);
  const fleet = { ...settings, storeName: storeNameOf(settings, registry) };
  return entry.open({ fleet, section: sectionOf(settings, entry), world, others });
}

/** A store of one host is another one on every host. */
function storeNameOf({ store }: Settings, registry: Registry): string {
  const entry = storeEntry(registry, store);
  const described = entry.describe(store);
  return entry.isShared === true ? described : `${hostname()}: ${described}`;
}

function otherBackends(settings: Settings, world: World, { backends }: Registry): OtherBackends {
  const others = Object.values(backends).filter(({ name }) => name !== settings.backend);
  return {
    madeBy: (ref) => others.find((entry) => entry.owns?.(ref) === true)?.name ?? null,
    async use(ref, call) {
      const entry = others.find((one) => one.owns?.(ref) === true);
      if (entry === undefined) return NO_OTHERS.use(ref, call);
      const fleet = { ...settings, blueprints: {}, skillsPath: null, orphanTimeoutMs: 0 };
      const backend = await entry.open({ fleet, section: sectionOf(settings, entry), world, others: NO_OTHERS });
      try {
        return await call(backend);
      } finally {
        await backend.close();
      }
    },
  };
}
