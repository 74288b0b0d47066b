/**
 * Settings: the configuration after it was checked, completed and frozen. No code outside `config/` sees the user's raw
 * input or applies a default. `schema.ts` describes the keys; this file has only the resolved ones.
 */

import type { FleetFacts } from "../backend/entry.ts";
import type { BackendName, Sections, StoreSettings } from "./registry.ts";
import type { CompletedConfig } from "./schema.ts";

export type { NamedBlueprint } from "../backend/blueprint.ts";

/** The keys that resolving changes: places, variables, hashes, and the sections of backends and stores. */
type Resolved = "home" | "fleetId" | "skills" | "accountIds" | "blueprints" | "store" | "backend" | keyof Sections;

type DeepReadonly<T> = T extends object ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> } : T;
/** Every other key of the schema, with defaults. */
type Unchanged = DeepReadonly<Omit<CompletedConfig, Resolved>>;

export interface Settings extends Unchanged, FleetFacts, Sections {
  readonly backend: BackendName;
  readonly store: StoreSettings;
  readonly checkpoints: Unchanged["checkpoints"];
}

export type LimitSettings = Settings["limits"];
