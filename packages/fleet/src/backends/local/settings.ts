/**
 * What the local backend works with: the configured part, and what follows from this installation.
 */

import { type SandboxdFiles, sandboxdFiles } from "@sandlot/sandboxd";
import type { FleetFacts } from "../../backend/entry.ts";
import { type Account, ID_REGISTRY, IdMapping } from "../../host/accounts/index.ts";
import type { LocalConfig } from "./config.ts";

/** The part of a fleet's settings that this backend looks at. */
export type ConfiguredSettings = Pick<FleetFacts, "home" | "fleetId" | "skillsPath" | "orphanTimeoutMs"> &
  Partial<Pick<FleetFacts, "blueprints" | "accountIds">> & { readonly local: LocalConfig };

export interface LocalSettings extends Required<ConfiguredSettings> {
  /**
   * Whom workspaces belong to on disk; `null` for a fleet that is not root's, which runs sandboxes as itself. Without
   * namespaces it is also what sandboxes run as.
   */
  readonly account: Account | null;
  /** Where homes of this machine reserve their ids; only tests have another than all. */
  readonly idRegistry: string;
  /** Shows sandboxes the files of other owners as theirs. */
  readonly mapping: IdMapping;
  /** Where `bwrap` is; a name is looked for in `PATH`. */
  readonly bubblewrapPath: string;
  /** The Node that runs the daemon inside. */
  readonly nodePath: string;
  /** What of the daemon goes inside. */
  readonly daemon: SandboxdFiles;
  /** How long a sandbox may take to be ready. */
  readonly readyTimeoutMs: number;
}

/** Many times what a start takes on a busy machine; longer hides that something is wrong. */
const READY_TIMEOUT_MS = 30_000;

export function localSettings(configured: ConfiguredSettings): LocalSettings {
  const { home, fleetId, local, skillsPath, orphanTimeoutMs, blueprints = {}, accountIds = null } = configured;
  return {
    ...{ home, fleetId, local, skillsPath, orphanTimeoutMs, blueprints, accountIds },
    idRegistry: ID_REGISTRY,
    mapping: new IdMapping(),
    account: process.getuid?.() === 0 ? { uid: local.uid, gid: local.gid } : null,
    bubblewrapPath: "bwrap",
    nodePath: process.execPath,
    daemon: sandboxdFiles(),
    readyTimeoutMs: READY_TIMEOUT_MS,
  };
}
