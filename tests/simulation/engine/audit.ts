/** The simulated engine reports each request when it arrives and when it takes effect. */

import type { EngineRef, SandboxId } from "@sandlot/contract";
import type { CreateSpec, Credentials, Target, WorkspaceSpot } from "../../../packages/fleet/src/backend/backend.ts";
import type { Instance } from "../process/instance.ts";
import type { SimObject, Workspace } from "./ledger.ts";

export interface EngineAudit {
  createAsked(by: Instance, spec: CreateSpec): void;
  destroyAsked(by: Instance, ref: EngineRef): void;
  /** Any other call that names an object. */
  refUsed(by: Instance, ref: EngineRef, method: string): void;
  /** A step on the files beside a sandbox. */
  sandboxAsked(by: Instance, sandboxId: SandboxId, method: string): void;
  rebound(by: Instance, target: Target, from: Credentials): void;
  workspaceAsked(by: Instance, step: "moveIn" | "makeIn" | "moveHome" | "purge", spot: WorkspaceSpot): void;
  workspaceChanged(by: Instance, step: "moveIn" | "makeIn" | "moveHome" | "purge", spot: WorkspaceSpot): void;
  /** A step of a restore changed the workspace. */
  restoring(by: Instance, spot: WorkspaceSpot, workspace: Workspace, gone: ReadonlySet<string>): void;
  restored(by: Instance, spot: WorkspaceSpot, workspace: Workspace): void;
  /** A sandbox is about to get the workspace. */
  used(by: Instance, spot: WorkspaceSpot): void;
  purged(by: Instance, spot: WorkspaceSpot, removed: readonly Workspace[]): void;
  quarantined(aside: Workspace): void;
  wrote(by: Instance, object: SimObject, token: string): void;
}
