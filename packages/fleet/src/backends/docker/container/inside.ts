/**
 * Our paths inside a container, and the command of its first process.
 *
 * Invariants
 * - The first process is the supervisor: it reaps, and starts the daemon again.
 * - Its shell and the daemon's Node come with their own loader and libraries, so that they run in any image that has a
 *   shell, whatever C library the image has, and are closed to commands (`runtime-directory.ts`).
 * - Neither path of its command line contains `node`: `pkill -f node` inside then ends only the agent's own programs.
 * - The image's variables reach commands, but neither the shell nor the daemon.
 * - Neither runs a program, nor loads a module, from the home: a sandbox writes there, and the next one has it.
 */

import { ENV_NAME_PATTERN, HOME_LINK, SYSTEM_PATH, WORKSPACE_ROOT } from "@sandlot/contract";
import { SANDBOXD_NODE_FLAGS } from "@sandlot/sandboxd";
import { closedSupervisor, RUNTIME } from "../../../host/runtime/runtime-directory.ts";
import { ANNOUNCE_FD } from "./announcement.ts";

const OURS = "/run/sandlot";

export const INSIDE = {
  /** Read-only: the daemon, its Node, loader and libraries. */
  runtime: `${OURS}/d`,
  /** The socket, the configuration, and the place where readiness is announced. */
  socketDirectory: `${OURS}/s`,
  socket: `${OURS}/s/d`,
  ready: `${OURS}/s/r`,
  /** Replaces the socket where the engine relays it: on the container's own disk, where every account may make it. */
  relayed: "/tmp/.sandlot-daemon",
  config: `${OURS}/s/c`,
  /** For the daemon alone: commands that fill `/tmp` must not stop it. */
  temporary: `${OURS}/tmp`,
} as const;

const at = (name: string) => `${INSIDE.runtime}/${name}`;

/** Printed when the image has no Node that can run the daemon. */
export const NO_RUNTIME = "sandlot: no Node that runs here";

/**
 * `brought`: the runtime directory holds a Node with its loader; otherwise the image must have one. `imageNames` are
 * the variables that the image sets. `says`: the daemon announces itself in the container's output. `readsPrograms`:
 * the runtime may have to read a program to run it; then nothing is closed.
 */
export function firstCommand(
  brought: boolean,
  imageNames: readonly string[],
  { says = false, readsPrograms = false } = {},
): readonly string[] {
  const unset = imageNames.filter((name) => ENV_NAME_PATTERN.test(name) && !KEPT.has(name));
  const script = [
    `unset ${["HOME", ...unset].join(" ")}`,
    ...(brought ? [] : [FIND_NODE]),
    `export PATH=${SYSTEM_PATH} TMPDIR=${INSIDE.temporary}`,
    ...(brought ? [] : [NAME_NODE]),
    `exec 3<${INSIDE.config}`,
    ...(says ? [`exec ${ANNOUNCE_FD}>&1`] : []),
    '. "$0"',
  ].join("\n");
  if (brought) return closedSupervisor(INSIDE.runtime, script, readsPrograms);
  const node = `${INSIDE.temporary}/${RUNTIME.node}`;
  return ["/bin/sh", "-c", script, at(RUNTIME.supervisor), node, ...SANDBOXD_NODE_FLAGS, at(RUNTIME.bundle)];
}

const KEPT: ReadonlySet<string> = new Set(["PATH", "TMPDIR"]);

/** Searches the image's own `PATH`, without the directories that a sandbox can write. */
const FIND_NODE = [
  "found=; IFS=:",
  "for folder in $PATH; do",
  `  case $folder in ${WORKSPACE_ROOT}/* | ${HOME_LINK}/* | [!/]* | '') continue ;; esac`,
  '  [ ! -x "$folder/node" ] || { found=$folder/node; break; }',
  "done; unset IFS",
  `[ -n "$found" ] || { echo "${NO_RUNTIME}" >&2; exit 97; }`,
].join("\n");
/** A link under another name, because `pkill` finds a process by the name of its command. */
const NAME_NODE = `ln -s "$found" ${INSIDE.temporary}/${RUNTIME.node}`;
