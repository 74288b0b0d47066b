/**
 * The backends and stores that a configuration can name. Tests pass another registry; everything else uses this one.
 */

import type { BackendEntry } from "../backend/entry.ts";
import { BACKENDS } from "../backends/registry.ts";
import type { StoreEntry } from "../store/entry.ts";
import { STORES } from "../store/registry.ts";

export interface Registry {
  readonly backends: Readonly<Record<string, BackendEntry>>;
  readonly stores: Readonly<Record<string, StoreEntry>>;
}

export const REGISTRY: Registry = { backends: BACKENDS, stores: STORES };

type Backends = typeof BACKENDS;
type Stores = typeof STORES;
export type BackendName = keyof Backends;
type StoreName = keyof Stores;

/** The schemas of the backends' sections, by name. */
export type SectionSchemas = {
  readonly [Name in BackendName as Backends[Name]["configSchema"] extends null ? never : Name]: NonNullable<
    Backends[Name]["configSchema"]
  >;
};

/** The backends' sections as settings have them. */
export type Sections = { readonly [Name in keyof SectionSchemas]: ReturnType<Backends[Name]["settings"]> };

/** The keys of all stores. */
export type StoreKeys = Merged<Stores[StoreName]["keys"]>;

export type StoreSettings = ReturnType<Stores[StoreName]["resolve"]>;

type Merged<Union> = (Union extends unknown ? (member: Union) => void : never) extends (all: infer All) => void
  ? All
  : never;

/** The schema has checked the name. */
export function backendEntry(registry: Registry, name: string): BackendEntry {
  return entryOf(registry.backends, name);
}

/** The schema has checked the type. */
export function storeEntry(registry: Registry, { type }: { readonly type: string }): StoreEntry {
  return entryOf(registry.stores, type);
}

/** A backend's section of settings. */
export function sectionOf(settings: object, { name }: BackendEntry): unknown {
  return (settings as Readonly<Record<string, unknown>>)[name] ?? null;
}

function entryOf<Entry>(entries: Readonly<Record<string, Entry>>, name: string): Entry {
  const entry = Object.hasOwn(entries, name) ? entries[name] : undefined;
  if (entry === undefined) throw new Error(`${name} is not in the registry`);
  return entry;
}
