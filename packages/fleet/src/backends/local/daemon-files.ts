/**
 * The daemon inside: its files on the host, their paths inside, and its command.
 *
 * Invariants
 * - No path of its command line contains `node`: `pkill -f node` inside then ends only the agent's own programs.
 * - The first process inside is the supervisor. It ends with the process outside that waits for it, so killing that one
 *   ends everything.
 * - Supervisor and daemon are closed to commands where the machine has a loader that supports it
 *   (`runtime-directory.ts`).
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
 * The log inside goes to a file on the daemon's own file system, which is small, so it cannot fill a disk outside. When
 * everything ends, the log is also printed outside, where a caller may still wait for the start.
 */
const LOG = `${DAEMON_TEMPORARY}/log`;
const SCRIPT = `exec 9>&2 2>>${LOG}; trap 'cat ${LOG} >&9' EXIT; . "$0"`;

const SETPRIV = "/usr/bin/setpriv";

export function daemonCommand({ bringsNode }: RuntimeDirectory): readonly string[] {
  // Without setpriv, killing the waiting process leaves the sandbox running; its own process still identifies it.
  const endWithParent = existsSync(SETPRIV) ? [SETPRIV, "--pdeathsig", "KILL", "--"] : [];
  return [...endWithParent, ...(bringsNode ? closedSupervisor(DIRECTORY, SCRIPT) : plainSupervisor())];
}

function plainSupervisor(): readonly string[] {
  const at = (name: string) => join(DIRECTORY, name);
  const daemon = [at(RUNTIME.node), ...SANDBOXD_NODE_FLAGS, at(RUNTIME.start)];
  return ["/bin/sh", "-c", SCRIPT, at(RUNTIME.supervisor), ...daemon];
}
