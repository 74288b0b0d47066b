/**
 * The `memory` backend's interface to its engine. The engine plays the part of external software: it outlives fleets,
 * several backends share one, and for crash tests it runs in another process. So every argument and result here is
 * plain data (JSON, and bytes), and every failure is a `SandlotError`, which travels as its code and details.
 */

import type {
  EngineRef,
  ExecInfo,
  ExecResult,
  FleetId,
  FollowEvent,
  Generation,
  SandboxFiles,
  SandboxId,
  SpawnedExec,
} from "@sandlot/contract";
import type {
  Activity,
  Created,
  CreateSpec,
  Credentials,
  EngineObject,
  Target,
  WorkspaceSight,
  WorkspaceSpot,
} from "../../backend/backend.ts";
import type { Marker } from "../../backend/labels.ts";
import type { Liveness } from "../../world/world.ts";
import type { EngineCheckpoints } from "./checkpoints/engine-checkpoints.ts";
import type { FollowOffsets } from "./exec/exec.ts";
import type { ExecRequest } from "./exec/exec-table.ts";

export type { ExecRequest } from "./exec/exec-table.ts";

export interface EngineApi {
  /** Marker, workspace or slot, and object: in one step, so what exists is never half-made. */
  create(spec: CreateSpec): Promise<Created>;
  rebind(target: Target, from: Credentials): Promise<void>;
  /** Checks that the daemon accepts these credentials: `sandbox_lost` or `stale_generation` if not. */
  greet(target: Target): Promise<void>;
  /** Resolves when the object has died or was removed. May take forever. */
  ended(ref: EngineRef): Promise<void>;
  probe(ref: EngineRef): Promise<Liveness>;
  /** Ends it. The dead object stays listed as long as a workspace is in its slot. */
  remove(ref: EngineRef): Promise<void>;
  list(fleet: FleetId, sandboxId?: SandboxId): Promise<readonly EngineObject[]>;
  activity(ref: EngineRef): Promise<Activity>;

  exec(target: Target, request: ExecRequest): Promise<ExecResult>;
  spawn(target: Target, request: ExecRequest): Promise<SpawnedExec>;
  execs(target: Target): Promise<readonly ExecInfo[]>;
  /** The output of a command from these offsets on, as soon as there is some; the end comes last. */
  follow(
    target: Target,
    execId: string,
    from: FollowOffsets,
    until: "exit" | "closed",
  ): Promise<readonly FollowEvent[]>;
  /** A held command waits no longer for this follower. */
  leave(target: Target, execId: string, follower: string): Promise<void>;
  writeStdin(target: Target, execId: string, content: Uint8Array, end: boolean): Promise<void>;
  /** Ends a command and all its processes. `false`: no command of that id runs. */
  killExec(target: Target, execId: string, signal?: string): Promise<boolean>;
  file<Name extends FileCall>(
    target: Target,
    name: Name,
    args: Parameters<SandboxFiles[Name]>,
  ): Promise<FileAnswer<Name>>;

  workspace(fleet: FleetId, step: WorkspaceStep, spot: WorkspaceSpot): Promise<WorkspaceSight>;
  checkpoint<Step extends CheckpointStep>(
    fleet: FleetId,
    step: Step,
    args: CheckpointArgs<Step>,
  ): Promise<ReturnType<EngineCheckpoints[Step]>>;
  /** Every thread that has a workspace. */
  workspaceOwners(fleet: FleetId): Promise<readonly Pick<WorkspaceSpot, "user" | "thread">[]>;
  latestGeneration(fleet: FleetId): Promise<number>;
  writeMarker(fleet: FleetId, marker: Marker): Promise<void>;
  markers(fleet: FleetId, sandboxId: SandboxId): Promise<readonly Marker[]>;
  dropMarker(fleet: FleetId, sandboxId: SandboxId, generation: Generation): Promise<void>;

  /** Returns a function that stops listening. */
  subscribe(listener: (event: EngineNotice) => void): () => void;
}

/** The calls that streams are built from: `download` reads pieces, `upload` writes the whole. */
export type FileCall = Exclude<keyof SandboxFiles, "download" | "upload" | "watch">;
export type FileAnswer<Name extends FileCall> = Awaited<ReturnType<SandboxFiles[Name]>>;

export type CheckpointStep = Exclude<keyof EngineCheckpoints, "purge">;
export type CheckpointArgs<Step extends CheckpointStep> =
  Parameters<EngineCheckpoints[Step]> extends [FleetId, ...infer Rest] ? Rest : never;

/** Each returns the state afterwards; `look` changes nothing. */
export type WorkspaceStep = "look" | "moveIn" | "makeIn" | "moveHome" | "quarantine" | "purge" | "emptyHome";

export type EngineNotice =
  | { readonly type: "died"; readonly fleet: FleetId; readonly ref: EngineRef; readonly sandboxId: SandboxId }
  | { readonly type: "resync" };
