/**
 * An entry of the registry of stores (`store/registry.ts`): everything that the fleet, the configuration and the CLI
 * know of a store. A new store is its folder, its entry and its documents.
 *
 * Rules for every entry
 * - An entry is cheap to load. A method imports heavy parts, such as the client of a database, when it runs.
 * - Its keys stand in the section `store` beside `type`. Each is optional; a key of another store is refused.
 * - Two stores may share a key, such as an address. Then both have the same schema object.
 */

import type { ConfigProblem } from "@sandlot/contract";
import type { z } from "zod";
import type { Finding } from "../backend/doctor/finding.ts";
import type { World } from "../world/world.ts";
import type { Store } from "./store.ts";

export interface StoreEntry<Given = unknown, Settings extends { readonly type: string } = { readonly type: string }> {
  /** The value of the key `store.type`. */
  readonly name: string;
  /** The store's part in the description of the key `store.type`. */
  readonly about: string;
  readonly keys: Readonly<Record<string, z.ZodType>>;
  /** Several hosts can use it. It then has `Store.entries`. Absent: one host's. */
  readonly isShared?: boolean;
  /** Turns the configured keys into the settings to open the store with. Reports what is wrong with them. */
  resolve(given: Given, context: StoreContext): Settings;
  /** A short text without secrets. */
  describe(settings: Settings): string;
  /** Rejects with `store_unavailable` or `store_corrupt`. */
  open(settings: Settings, world: World): Promise<Store>;
  /** Whether the store exists already, so that a look does not create one. */
  exists(settings: Settings): boolean;
  doctor(settings: Settings): Promise<readonly Finding[]>;
}

export interface StoreContext {
  readonly home: string;
  readonly backend: { readonly name: string; readonly endsWithProcess: boolean };
  /** A call to a server must be over in less than half of it. */
  readonly sessionLifetimeMs: number;
  /** The problem of a path by itself. */
  checkPath(text: string): Omit<ConfigProblem, "path"> | undefined;
  /** `key` is one of the store's. */
  tell(key: string, problem: Omit<ConfigProblem, "path">): void;
}
