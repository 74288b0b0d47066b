/**
 * An entry of the registry of backends (`backends/registry.ts`): all that the fleet, the configuration and the command
 * line know about a backend. A new backend consists of its folder, its entry and its documents.
 *
 * Rules for every entry
 * - An entry is cheap to load: a command that only prints a version may load it. Methods import heavy modules.
 * - An entry holds no state. Two fleets of one process may use it at once.
 * - A section is the output of the backend's schema, after `settings`. Other backends never see it.
 */

import type { EngineRef, FleetId, Sandbox } from "@sandlot/contract";
import type { z } from "zod";
import type { World } from "../world/world.ts";
import type { Backend } from "./backend.ts";
import type { NamedBlueprint } from "./blueprint.ts";
import type { CheckpointBounds } from "./checkpoints.ts";
import type { Finding } from "./doctor/finding.ts";

export interface BackendEntry<Completed = unknown, Section = unknown> {
  /** What the key `backend` is set to, and the key of the backend's section. */
  readonly name: string;
  /** A short text for the description of the key `backend`. */
  readonly about: string;
  /** The section with its defaults; every key is optional and described. `null`: there is nothing to configure. */
  readonly configSchema: z.ZodType<Completed> | null;
  /** Sandboxes end with the process that made them, so no other process may find a record of one. */
  readonly endsWithProcess: boolean;
  /** Turns the completed section into the backend's settings. */
  settings(completed: Completed): Section;
  /**
   * The backend, and all of its settings whose effect a sandbox could observe. It is a part of every blueprint's hash:
   * another text makes all blanks of the fleet useless.
   */
  blueprintKey(section: Section): string;
  /** Whether sandboxes can be limited. Then blueprints have default limits. */
  canLimit(section: Section): boolean;
  /** The names that a blueprint's mounts may use as `volume`. Absent: the engine has no volumes. */
  volumes?(section: Section): readonly string[];
  /** How old a sandbox may be that takes a lease, where the engine ends sandboxes by their age. */
  lifetimeMaxMs?(section: Section): number;
  /** Whether sandboxes are pods, so that blueprints may have `pod`. */
  readonly hasPods?: boolean;
  /** The experimental features in these settings, in a sentence each. */
  experimental(section: Section): readonly string[];
  /** Rejects with `engine_unavailable` when the engine cannot be reached, and leaves nothing half-made. */
  open(context: OpenContext<Section>): Promise<Backend>;
  /** The checks of `sandlot doctor` for this machine and the engine. They leave no change behind. */
  doctor(context: DoctorContext<Section>): Promise<readonly Finding[]>;
  /** Whether a reference has this backend's form. Absent: other backends cannot end its sandboxes. */
  owns?(ref: EngineRef): boolean;
  /** The sandboxes as any process can list them without opening a backend. `null`: not with these settings. */
  look?(context: LookContext<Section>): Promise<Pick<Backend, "list" | "capabilities"> | null>;
  /** Ends what is left of a fleet whose processes are gone, and lets the engine forget it. Absent: there is nothing. */
  letGo?(context: LetGoContext<Section>, signal: AbortSignal): Promise<LetGo>;
}

export interface LetGoContext<Section> extends LookContext<Section> {
  /** An operator's word that what does not answer does not run. */
  readonly machinesAreOff: boolean;
}

export interface LetGo {
  readonly ended: number;
  /** What could not be ended, and why. */
  readonly left: readonly { readonly name: string; readonly because: string }[];
}

/** What every backend knows about the fleet. */
export interface FleetFacts {
  /** All state of this fleet on this machine. */
  readonly home: string;
  /** Two fleets on one engine never touch each other's sandboxes. */
  readonly fleetId: FleetId;
  /** The host directory that every sandbox sees at /mnt/skills, read-only. */
  readonly skillsPath: string | null;
  /** When a sandbox that no process renews ends itself. 0: this process renews none. */
  readonly orphanTimeoutMs: number;
  readonly blueprints: Readonly<Record<string, NamedBlueprint>>;
  /** What checkpoints may use. Absent: the backend's own bounds. */
  readonly checkpoints?: CheckpointBounds;
  /** Names the fleet's store, without its credentials. Absent where no store is open. */
  readonly storeName?: string;
  /** The ids that sandboxes of a root fleet run as; `null`: a range that no other home has. */
  readonly accountIds: { readonly first: number; readonly count: number } | null;
}

export interface LookContext<Section> {
  readonly fleet: FleetFacts;
  readonly section: Section;
  readonly world: World;
}

export interface OpenContext<Section> extends LookContext<Section> {
  readonly others: OtherBackends;
}

export interface DoctorContext<Section> {
  readonly fleet: FleetFacts;
  readonly section: Section;
  readonly environment: Environment;
  readonly trial: Trial;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Makes one sandbox of the default blueprint in a fleet of its own, passes it to `use`, and removes everything
 * afterwards.
 */
export type Trial = (use: (sandbox: Sandbox) => Promise<void>) => Promise<void>;

/**
 * The other backends of the registry, for sandboxes that this fleet made before its configuration named this backend.
 */
export interface OtherBackends {
  /** The name of the backend that made it; `null`: none of the others. */
  madeBy(ref: EngineRef): string | null;
  /**
   * Runs `call` with the backend that made it, in this fleet's home. That backend renews no sandbox, so an unwanted one still
   * ends by itself.
   */
  use<T>(ref: EngineRef, call: (backend: Backend) => Promise<T>): Promise<T>;
}

/** For a backend that is opened without a registry. */
export const NO_OTHERS: OtherBackends = {
  madeBy: () => null,
  use: (ref) => Promise.reject(new Error(`no other backend has made ${ref}`)),
};
