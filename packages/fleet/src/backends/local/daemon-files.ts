/**
 * The daemon inside: which files of the host it needs, where they are seen, and how it is started.
 *
 * Invariants
 * - No path that it is run by has `node` in it: `pkill -f node` inside means the agent's own programs.
 * - The first process inside is the supervisor. It ends when the process outside that waits for it does, so killing that
 *   one alone leaves nothing running.
 */

import { existsSync } from "node:fs";
import { nativeParts, SANDBOXD_NODE_FLAGS, type SandboxdFiles } from "@sandlot/sandboxd";
import { DAEMON_DIRECTORY, DAEMON_TEMPORARY } from "./bubblewrap/arguments.ts";
import type { Binding } from "./mounts.ts";

const RUNTIME = `${DAEMON_DIRECTORY}/sandboxd-runtime`;
const BUNDLE = `${DAEMON_DIRECTORY}/sandboxd.cjs`;
const SUPERVISOR = `${DAEMON_DIRECTORY}/supervisor.sh`;

export function daemonBindings(nodePath: string, daemon: SandboxdFiles): readonly Binding[] {
  const readOnly = true;
  const { bundle, supervisor } = daemon;
  return [
    { from: nodePath, to: RUNTIME, readOnly },
    { from: bundle, to: BUNDLE, readOnly },
    { from: supervisor, to: SUPERVISOR, readOnly },
    // Beside the bundle, where it looks for them.
    ...nativeParts(daemon).map(({ path, name }) => ({ from: path, to: `${DAEMON_DIRECTORY}/${name}`, readOnly })),
  ];
}

/**
 * What is said inside goes to a file of the daemon's own file system, which is small, so nothing outside can be filled
 * with it. Should everything end, it is said outside too, where somebody may still be waiting for the start.
 */
const LOG = `${DAEMON_TEMPORARY}/log`;
const SCRIPT = `exec 9>&2 2>>${LOG}; trap 'cat ${LOG} >&9' EXIT; . "$0"`;

const SETPRIV = "/usr/bin/setpriv";

export function daemonCommand(): readonly string[] {
  // Where there is no setpriv, a sandbox whose waiting process was killed is found by its own process, as ever.
  const endWithParent = existsSync(SETPRIV) ? [SETPRIV, "--pdeathsig", "KILL", "--"] : [];
  return [...endWithParent, "/bin/sh", "-c", SCRIPT, SUPERVISOR, RUNTIME, ...SANDBOXD_NODE_FLAGS, BUNDLE];
}
