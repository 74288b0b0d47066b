/**
 * Where the store of a run is: the resolved settings of a store, handed from main to the other processes of the run as
 * one environment variable.
 */

import { REGISTRY, type StoreSettings, storeEntry } from "../../../packages/fleet/src/config/registry.ts";
import type { Store } from "../../../packages/fleet/src/store/store.ts";
import type { World } from "../../../packages/fleet/src/world/world.ts";

export function formatAddress(settings: StoreSettings): string {
  return JSON.stringify(settings);
}

/** The type of a message is trusted: all processes of a run start from the same checkout. */
export function parseAddress(text: string): StoreSettings {
  return JSON.parse(text);
}

export function openStore(settings: StoreSettings, world: World): Promise<Store> {
  return storeEntry(REGISTRY, settings).open(settings, world);
}
