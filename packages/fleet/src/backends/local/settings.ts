/**
 * What the local backend works with: the configured part, and what follows from this installation.
 */

import { type SandboxdFiles, sandboxdFiles } from "@sandlot/sandboxd";
import type { Settings } from "../../config/settings.ts";

/** The part of a fleet's settings that this backend looks at. */
export type ConfiguredSettings = Pick<Settings, "home" | "fleetId" | "local" | "skillsPath" | "orphanTimeoutMs"> &
  Partial<Pick<Settings, "blueprints">>;

export interface LocalSettings extends Required<ConfiguredSettings> {
  /** What sandboxes run as; `null` for a fleet that is not root's, which runs them as itself. */
  readonly account: Account | null;
  /** Where `bwrap` is; a name is looked for in `PATH`. */
  readonly bubblewrapPath: string;
  /** The Node that runs the daemon inside. */
  readonly nodePath: string;
  /** What of the daemon goes inside. */
  readonly daemon: SandboxdFiles;
  /** How long a sandbox may take to be ready. */
  readonly readyTimeoutMs: number;
}

export interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** The account inside, whatever the host's is. */
export const INNER_ACCOUNT = { name: "sandbox", uid: 1000, gid: 1000, home: "/home/sandbox" } as const;

/** Many times what a start takes on a busy machine; longer hides that something is wrong. */
const READY_TIMEOUT_MS = 30_000;

export function localSettings(configured: ConfiguredSettings): LocalSettings {
  const { home, fleetId, local, skillsPath, orphanTimeoutMs, blueprints = {} } = configured;
  return {
    ...{ home, fleetId, local, skillsPath, orphanTimeoutMs, blueprints },
    account: process.getuid?.() === 0 ? { uid: local.uid, gid: local.gid } : null,
    bubblewrapPath: "bwrap",
    nodePath: process.execPath,
    daemon: sandboxdFiles(),
    readyTimeoutMs: READY_TIMEOUT_MS,
  };
}
