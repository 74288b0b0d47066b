/**
 * The local backend's settings: the configured part, and the part that follows from this installation.
 */

import { type SandboxdFiles, sandboxdFiles } from "@sandlot/sandboxd";
import type { CheckpointBounds } from "../../backend/checkpoints.ts";
import type { FleetFacts } from "../../backend/entry.ts";
import { type Account, ID_REGISTRY, IdMapping } from "../../host/accounts/index.ts";
import type { LocalConfig } from "./config.ts";

/** The part of a fleet's settings that this backend uses. */
export type ConfiguredSettings = Pick<FleetFacts, "home" | "fleetId" | "skillsPath" | "orphanTimeoutMs"> &
  Partial<Pick<FleetFacts, "blueprints" | "accountIds" | "checkpoints">> & { readonly local: LocalConfig };

export interface LocalSettings extends Required<Omit<ConfiguredSettings, "checkpoints">> {
  readonly checkpoints?: CheckpointBounds;
  /**
   * The owner of workspaces on disk; `null` for a fleet that does not run as root, whose sandboxes run as the fleet's
   * account. Without namespaces sandboxes run as this account, too.
   */
  readonly account: Account | null;
  /** The registry where homes of this machine reserve their ids; only tests use another. */
  readonly idRegistry: string;
  /** Shows sandboxes the files of other owners as theirs. */
  readonly mapping: IdMapping;
  /** The path of `bwrap`; a name is searched in `PATH`. */
  readonly bubblewrapPath: string;
  /** The Node that runs the daemon inside. */
  readonly nodePath: string;
  /** The daemon's files that go inside. */
  readonly daemon: SandboxdFiles;
  /** The deadline for a sandbox's readiness. */
  readonly readyTimeoutMs: number;
}

/** Many times what a start takes on a busy machine; a longer deadline would hide a fault. */
const READY_TIMEOUT_MS = 30_000;

export function localSettings(configured: ConfiguredSettings): LocalSettings {
  const {
    home,
    fleetId,
    local,
    skillsPath,
    orphanTimeoutMs,
    blueprints = {},
    accountIds = null,
    checkpoints,
  } = configured;
  return {
    ...{ home, fleetId, local, skillsPath, orphanTimeoutMs, blueprints, accountIds },
    ...(checkpoints !== undefined && { checkpoints }),
    idRegistry: ID_REGISTRY,
    mapping: new IdMapping(),
    account: process.getuid?.() === 0 ? { uid: local.uid, gid: local.gid } : null,
    bubblewrapPath: "bwrap",
    nodePath: process.execPath,
    daemon: sandboxdFiles(),
    readyTimeoutMs: READY_TIMEOUT_MS,
  };
}
