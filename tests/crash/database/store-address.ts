/**
 * Where the store of a run is: the resolved settings of a store, handed from main to the other processes of the run as
 * one environment variable.
 */

import { REGISTRY, type StoreSettings, storeEntry } from "../../../packages/fleet/src/config/registry.ts";
import type { PostgresSettings } from "../../../packages/fleet/src/store/postgres/settings.ts";
import type { RedisSettings } from "../../../packages/fleet/src/store/redis/settings.ts";
import type { RowServer } from "../../../packages/fleet/src/store/rows/row-server.ts";
import type { Store } from "../../../packages/fleet/src/store/store.ts";
import type { World } from "../../../packages/fleet/src/world/world.ts";

const PATIENCE_MS = 10_000;

/** The settings of a store whose database is a server. */
export type ServerSettings = PostgresSettings | RedisSettings;
export type StoreAddress = StoreSettings;

export function formatAddress(address: StoreAddress): string {
  return JSON.stringify(address);
}

/** The type of a message is trusted: all processes of a run start from the same checkout. */
export function parseAddress(text: string): StoreAddress {
  return JSON.parse(text);
}

export function openStore(address: StoreAddress, world: World): Promise<Store> {
  return storeEntry(REGISTRY, address).open(address, world);
}

/** For main, which judges: a busy machine is no fault of the store. */
export function patient(address: StoreAddress): StoreAddress {
  return "timeoutMs" in address ? { ...address, timeoutMs: PATIENCE_MS } : address;
}

/** The rows below a store, for a program that commits rows itself. */
export async function openRows(address: ServerSettings, world: World): Promise<RowServer> {
  if (address.type === "postgres") {
    const { openPostgresRowServer } = await import("../../../packages/fleet/src/store/postgres/postgres-row-server.ts");
    return openPostgresRowServer(address, world);
  }
  const { openRedisRowServer } = await import("../../../packages/fleet/src/store/redis/redis-row-server.ts");
  return openRedisRowServer({ settings: address, world });
}
