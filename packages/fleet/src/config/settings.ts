/**
 * Settings: the configuration after it was checked, completed and frozen. Nothing below `config/` sees what a user
 * typed; nothing above it sees a default being applied. `schema.ts` describes the keys; here stand only those that are resolved.
 */

import type { FleetFacts } from "../backend/entry.ts";
import type { BackendName, Sections, StoreSettings } from "./registry.ts";
import type { CompletedConfig } from "./schema.ts";

export type { NamedBlueprint } from "../backend/blueprint.ts";

/** What resolving changes: places, variables, hashes, and the sections of backends and stores. */
type Resolved = "home" | "fleetId" | "skills" | "accountIds" | "blueprints" | "store" | "backend" | keyof Sections;

type DeepReadonly<T> = T extends object ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> } : T;
/** Every other key of the schema, as it was completed. */
type Unchanged = DeepReadonly<Omit<CompletedConfig, Resolved>>;

export interface Settings extends Unchanged, FleetFacts, Sections {
  readonly backend: BackendName;
  readonly store: StoreSettings;
}

export type LimitSettings = Settings["limits"];
