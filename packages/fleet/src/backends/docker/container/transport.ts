/**
 * The transport to a container's daemon: a socket in a directory that container and fleet share, or a port that the
 * engine publishes.
 *
 * Invariants
 * - A socket is preferred: it needs no network. A port is for engines that cannot share one.
 * - Publishing needs a network of the engine, which the fleet cannot guard. So it is done only for a blueprint whose
 *   network is open, and only in a network that the configuration names; anything else is refused.
 * - A runtime that may hide sockets does not support our egress either. So with it an open network is published from
 *   the start, and a container without a network is refused when its socket turns out to be hidden.
 * - The engine picks the port. The fleet searches for none.
 * - An engine that relays sockets supports no other transport, and no network that keeps its sandboxes apart.
 */

import { SandlotError } from "@sandlot/contract";
import type { Blueprint } from "../../../backend/blueprint.ts";
import type { DockerConfig as ConfiguredDocker } from "../config.ts";
import type { EngineFacts } from "../engine/engine.ts";

export type Transport = "socket" | "port";

/** The port of daemons whose port is published. Agents' programs rarely use it. */
export const DAEMON_PORT = 7_411;

/** Runtimes whose containers are ordinary processes of the engine's kernel: their sockets are visible outside. */
const PLAIN_RUNTIMES: ReadonlySet<string> = new Set(["runc", "crun", "youki", "io.containerd.runc.v2", "oci"]);

type Wanted = Pick<ConfiguredDocker, "transport" | "network">;

/**
 * The transport to try first. Throws `capability_missing` when it is unsupported. `givesWayOut`: a container without a
 * network of the engine can have an egress.
 */
export function chooseTransport(
  { transport, network }: Wanted,
  facts: Pick<EngineFacts, "isOnThisHost" | "relaysSockets">,
  givesWayOut: boolean,
  wanted: Blueprint["network"],
): Transport {
  if (facts.relaysSockets && (transport === "port" || wanted.mode !== "none"))
    throw notWithoutSocket(transport === "port" ? "a port that the engine picks" : `network ${wanted.mode}`);
  const sharesSockets = transport === "socket" || (transport === "auto" && (facts.isOnThisHost || facts.relaysSockets));
  if (sharesSockets && (wanted.mode === "none" || givesWayOut)) return "socket";
  const problem = transport === "socket" ? `network ${wanted.mode}` : publishProblem(network, wanted);
  if (problem !== null) throw notWithoutSocket(problem);
  return "port";
}

/** The engine's name of the runtime that isolates a sandbox; `null` for the engine's default. */
export function runtimeOf(
  { runtime }: Pick<Blueprint, "runtime">,
  docker: Pick<ConfiguredDocker, "runtime">,
): string | null {
  return runtime ?? docker.runtime;
}

/** Whether anything may be published at all. */
export function publishes({ transport, network }: Wanted): boolean {
  return transport !== "socket" && network !== null;
}

/** Whether a container's sockets may be invisible outside, so that the maker must check. */
export function mayHideSockets(
  runtime: string | null,
  { defaultRuntime }: Pick<EngineFacts, "defaultRuntime">,
): boolean {
  return !PLAIN_RUNTIMES.has(runtime ?? defaultRuntime);
}

/** Whether the runtime may have to read a program to run it, as gVisor does. Kata's kernel is Linux. */
export function mayReadPrograms(
  runtime: string | null,
  { defaultRuntime }: Pick<EngineFacts, "defaultRuntime">,
): boolean {
  const name = runtime ?? defaultRuntime;
  return !PLAIN_RUNTIMES.has(name) && !/kata/i.test(name);
}

function publishProblem(network: string | null, { mode }: Blueprint["network"]): string | null {
  if (mode !== "open") return `network ${mode} where the engine cannot share a socket`;
  return network === null
    ? "network open where the engine cannot share a socket and docker.network names no network"
    : null;
}

function notWithoutSocket(neededBy: string): SandlotError {
  return new SandlotError("capability_missing", { backend: "docker", capability: "network", neededBy });
}

/** The daemon runs, but its socket is not visible; without a network there is no other transport. */
export function socketsHidden(runtime: string): SandlotError {
  const problem = `the runtime ${runtime} does not show sockets that containers make in shared directories`;
  const fix =
    "register gVisor's runtime with --host-uds=all; or give the blueprint an open network and name one in docker.network";
  return new SandlotError("isolation_unavailable", { backend: "docker", problem, fix });
}
