/**
 * The daemon inside: which files of the host it needs, where they are seen, and how it is started.
 *
 * Invariants
 * - No path that it is run by has `node` in it: `pkill -f node` inside means the agent's own programs.
 * - The first process inside is the supervisor. It ends when the process outside that waits for it does, so killing that
 *   one alone leaves nothing running.
 * - Supervisor and daemon are closed to commands where the machine has a loader that makes them so (`runtime-directory.ts`).
 */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { SANDBOXD_NODE_FLAGS } from "@sandlot/sandboxd";
import type { Binding } from "../../host/mounts/mounts.ts";
import {
  closedSupervisor,
  RUNTIME,
  type RuntimeDirectory,
  runtimeBindings,
} from "../../host/runtime/runtime-directory.ts";
import { DAEMON_DIRECTORY, DAEMON_TEMPORARY } from "./bubblewrap/arguments.ts";

const DIRECTORY = `${DAEMON_DIRECTORY}/d`;

export function daemonBindings(runtime: RuntimeDirectory, nodePath: string): readonly Binding[] {
  return runtimeBindings({ ...runtime, nodePath }, DIRECTORY);
}

/**
 * What is said inside goes to a file of the daemon's own file system, which is small, so nothing outside can be filled
 * with it. Should everything end, it is said outside too, where somebody may still be waiting for the start.
 */
const LOG = `${DAEMON_TEMPORARY}/log`;
const SCRIPT = `exec 9>&2 2>>${LOG}; trap 'cat ${LOG} >&9' EXIT; . "$0"`;

const SETPRIV = "/usr/bin/setpriv";

export function daemonCommand({ bringsNode }: RuntimeDirectory): readonly string[] {
  // Where there is no setpriv, a sandbox whose waiting process was killed is found by its own process, as ever.
  const endWithParent = existsSync(SETPRIV) ? [SETPRIV, "--pdeathsig", "KILL", "--"] : [];
  return [...endWithParent, ...(bringsNode ? closedSupervisor(DIRECTORY, SCRIPT) : plainSupervisor())];
}

function plainSupervisor(): readonly string[] {
  const at = (name: string) => join(DIRECTORY, name);
  const daemon = [at(RUNTIME.node), ...SANDBOXD_NODE_FLAGS, at(RUNTIME.start)];
  return ["/bin/sh", "-c", SCRIPT, at(RUNTIME.supervisor), ...daemon];
}
