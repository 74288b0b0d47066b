/**
 * Settings: the configuration after it was checked, completed and frozen. Nothing below `config/` sees what a user
 * typed; nothing above it sees a default being applied.
 */

import type { BlueprintHash, FleetId } from "@sandlot/contract";
import type { Blueprint } from "../backend/blueprint.ts";

/** `count` ids from `first` on, two for each sandbox. */
export interface IdRange {
  readonly first: number;
  readonly count: number;
}

export interface Settings {
  /** All state of this fleet on this machine. */
  readonly home: string;
  /** Two fleets on one engine never touch each other's sandboxes. */
  readonly fleetId: FleetId;
  readonly backend: "local" | "docker" | "memory";
  readonly local: LocalSettings;
  readonly docker: DockerSettings;
  /** The ids that sandboxes of a root fleet run as; `null`: a range that no other home has. */
  readonly accountIds: IdRange | null;
  /** The host directory that every sandbox sees at /mnt/skills, read-only. */
  readonly skillsPath: string | null;
  readonly store: { readonly type: "memory" } | { readonly type: "sqlite"; readonly path: string };
  readonly blueprints: Readonly<Record<string, NamedBlueprint>>;
  /** How many blanks to keep ready, by blueprint. */
  readonly pool: Readonly<Record<string, number>>;
  readonly limits: LimitSettings;
  /** A parked sandbox ends after this long. 0: never. */
  readonly idleTimeoutMs: number;
  /** No new leases after this long; ends when the last one does. 0: never. */
  readonly maxLifetimeMs: number;
  /** How long something of ours may stay in the engine without a record; also when an unmanaged sandbox ends itself. */
  readonly orphanTimeoutMs: number;
  readonly acquireTimeoutMs: number;
  /** A peer that is not heard of for this long is dead. */
  readonly sessionLifetimeMs: number;
  /** How long the engine may take to confirm a stop before it is asked again. */
  readonly stopTimeoutMs: number;
  /** How often each housekeeping task looks. */
  readonly housekeepingIntervalMs: number;
  readonly autoRestart: boolean;
  readonly leakDetection: { readonly afterMs: number; readonly captureStacks: boolean };
  /** What counts as work going on inside a parked sandbox. */
  readonly activity: { readonly cpuShareMin: number; readonly previewQuietMs: number };
}

export interface LocalSettings {
  readonly isolation: "bubblewrap" | "unsafe-process";
  /** What sandboxes of a root fleet run as. */
  readonly uid: number;
  readonly gid: number;
  readonly tmpBytes: number;
  readonly homeBytes: number;
}

export interface DockerSettings {
  /** Which kind of engine: one that speaks Docker's API, or Apple's `container` on macOS. */
  readonly engine: "docker" | "apple-container";
  /** `null`: wherever an engine is found. */
  readonly host: string | null;
  /** The image of blueprints that name none. */
  readonly image: string;
  /** A runtime of the engine's by name; `null` for the engine's own. */
  readonly runtime: string | null;
  readonly transport: "auto" | "socket" | "port";
  /** The engine's network that sandboxes with a published port join; `null`: nothing is published. */
  readonly network: string | null;
  /** The address of the engine's host that ports are published on, and where this process reaches them. */
  readonly publishBind: string;
  readonly publishHost: string;
  /** Directories as this process sees them, and as the engine does. Empty: both see the same. */
  readonly hostPaths: Readonly<Record<string, string>>;
  /** What sandboxes of a root fleet run as. */
  readonly uid: number;
  readonly gid: number;
  readonly tmpBytes: number;
  readonly homeBytes: number;
  readonly readOnlyRoot: boolean;
  /** Linux capabilities that the image cannot do without. */
  readonly capabilities: readonly string[];
  /** Parked sandboxes are paused. */
  readonly pauseParked: boolean;
  readonly pull: "missing" | "never";
  readonly pullTimeoutMs: number;
}

export interface LimitSettings {
  /** `hard` is never exceeded, across processes. `soft` evicts what it can and otherwise goes over and says so. */
  readonly mode: "hard" | "soft";
  readonly max: number;
  /** 0: no limit per user. */
  readonly maxPerUser: number;
  /** Who has a limit of their own instead of `maxPerUser`. */
  readonly users?: { readonly [user: string]: { readonly max: number } } | undefined;
  readonly queueMax: number;
  readonly onFull: "wait" | "reject";
}

export interface NamedBlueprint {
  readonly name: string;
  readonly hash: BlueprintHash;
  readonly blueprint: Blueprint;
}
