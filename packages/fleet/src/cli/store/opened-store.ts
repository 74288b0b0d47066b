/** The configured store for commands about it. No backend is opened, and no store is made unless a command says so. */

import { SandlotError } from "@sandlot/contract";
import type { FleetConfig } from "../../config/fleet-config.ts";
import { REGISTRY, storeEntry } from "../../config/registry.ts";
import { resolveSettings } from "../../config/resolve-settings.ts";
import type { Settings } from "../../config/settings.ts";
import type { StoreEntry } from "../../store/entry.ts";
import type { Store } from "../../store/store.ts";
import { systemWorld } from "../../world/system-world.ts";
import type { World } from "../../world/world.ts";
import { loadSettings } from "../load-settings.ts";
import type { Terminal } from "../terminal.ts";

export interface ConfiguredStore {
  readonly settings: Settings;
  readonly entry: StoreEntry;
  /** Without secrets. */
  readonly description: string;
}

export interface OpenedStore extends ConfiguredStore {
  readonly store: Store;
  readonly world: World;
}

/** `changes` replaces keys of the configuration. */
export async function findStore(
  terminal: Terminal,
  config: string | undefined,
  changes: Pick<FleetConfig, "store"> = {},
): Promise<ConfiguredStore> {
  const loaded = await loadSettings(config, terminal.environment);
  const settings = resolveSettings({ ...loaded.config, ...changes }, terminal.environment);
  const entry = storeEntry(REGISTRY, settings.store);
  return { settings, entry, description: entry.describe(settings.store) };
}

/** Opens the store, or makes it with `mayMake`, for the time of `use`. */
export async function withStore<T>(
  found: ConfiguredStore,
  mayMake: boolean,
  use: (opened: OpenedStore) => Promise<T>,
): Promise<T> {
  const { settings, entry, description } = found;
  if (settings.store.type === "memory") throw unusable("a store in memory ends with its process");
  if (!mayMake && !entry.exists(settings.store)) throw unusable(`there is no store yet (${description})`);
  const world = systemWorld();
  const store = await entry.open(settings.store, world);
  try {
    return await use({ ...found, store, world });
  } finally {
    await store.close();
  }
}

function unusable(problem: string): SandlotError {
  return new SandlotError("config_invalid", { path: "store", problem });
}
