/**
 * The home directory of the account inside a sandbox.
 *
 * A kept home is a part of the workspace, so it moves, counts and goes with it. A temporary one is in memory and ends
 * with its sandbox.
 */

import { WORKSPACE_ROOT } from "./sandbox.ts";

export const HOME_MODES = ["kept", "temporary"] as const;
export type HomeMode = (typeof HOME_MODES)[number];

/** The name of a kept home below the workspace's root. */
export const HOME_DIRECTORY = ".home";
export const KEPT_HOME = `${WORKSPACE_ROOT}/${HOME_DIRECTORY}`;
export const TEMPORARY_HOME = "/home/temporary";
/** A link to the home, on the local backend and in the default image. */
export const HOME_LINK = "/home/sandbox";

/** The directory of the ACP agent, which has the path `/mnt/acp-workspace`. */
const ACP_DIRECTORY = ".acp-workspace";
/** Directories at the workspace's root. Lists and searches that begin above them skip them. */
export const UNLISTED_DIRECTORIES: readonly string[] = [ACP_DIRECTORY, HOME_DIRECTORY];

/** Where the environment of a blueprint is, read-only. */
export const ENVIRONMENT_ROOT = "/opt/env";

/** Where programs of the system are. A sandbox cannot write there. */
export const SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** What a command's `PATH` begins with: what the sandbox has installed, and what its environment brings. */
export function ownPath(home: string): string {
  return [`${home}/.local/bin`, `${home}/.cargo/bin`, `${home}/go/bin`, `${ENVIRONMENT_ROOT}/bin`].join(":");
}

/**
 * The directories that a list or a search from `root` skips, relative to it. A call that names one, as its root or in
 * its pattern, gets it. `workspaceRoot` differs only where there are no mounts.
 */
export function unlistedBelow(
  root: string,
  pattern?: string,
  workspaceRoot: string = WORKSPACE_ROOT,
): readonly string[] {
  const plain = root.replace(/\/+/g, "/").replace(/(?<=.)\/$/, "");
  const prefix = plain === "/" ? "/" : `${plain}/`;
  const asked = (pattern ?? "").replace(/^(?:\.?\/)+/, "").split("/");
  return UNLISTED_DIRECTORIES.flatMap((name) => {
    const path = `${workspaceRoot}/${name}`;
    if (!path.startsWith(prefix)) return [];
    const relative = path.slice(prefix.length);
    return relative.split("/").every((part, at) => asked[at] === part) ? [] : [relative];
  });
}
