/**
 * The port that the engine has picked for a container's daemon, and whether the daemon can be reached there.
 */

import { SandlotError } from "@sandlot/contract";
import { type DaemonTarget, renewDaemon } from "../../../sandboxd/index.ts";
import { sleep } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import type { Engine } from "../engine/engine.ts";
import { createFailed } from "../engine/trouble.ts";
import { DAEMON_PORT } from "./transport.ts";

/** The engine's forwarding starts a moment after the container. */
const LOOKS = 40;
const LOOK_MS = 50;

/** Read from the engine, which alone knows it. `null` while the container does not run. */
export async function publishedPort(
  engine: Engine,
  containerId: string,
  inside: number = DAEMON_PORT,
): Promise<number | null> {
  const ports = (await engine.inspect(containerId))?.NetworkSettings?.Ports ?? {};
  const port = Number(ports[`${inside}/tcp`]?.[0]?.HostPort ?? "");
  return Number.isInteger(port) && port > 0 ? port : null;
}

/** Resolves when the daemon has responded there, with its own credentials. */
export async function reachPort(target: DaemonTarget, world: World, signal: AbortSignal): Promise<void> {
  for (let looks = 0; ; looks++) {
    try {
      return await renewDaemon(target, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (looks < LOOKS && !isRefused(error)) await sleep(world, LOOK_MS, signal);
      else throw createFailed(`it listens, but not for us: ${said(error)}; see docker.publishHost`, error);
    }
  }
}

/** A wrong response: it will not change. */
function isRefused(error: unknown): boolean {
  return error instanceof SandlotError && error.code !== "sandbox_unreachable";
}

function said(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Refuses a network whose members can reach each other, where the engine reports that. */
export async function checkNetwork(engine: Engine, name: string): Promise<void> {
  const found = await engine.network(name);
  if (found === null) throw isolation(`the engine has no network ${name}`, `docker network create … ${name}`);
  const isOpen = found.Driver === "bridge" && found.Options?.[ICC] !== "false" && !engine.facts.isPodman;
  if (isOpen)
    throw isolation(
      `sandboxes in the network ${name} could reach each other`,
      `docker network create --opt ${ICC}=false ${name}`,
    );
}

const ICC = "com.docker.network.bridge.enable_icc";

function isolation(problem: string, fix: string): SandlotError {
  return new SandlotError("isolation_unavailable", { backend: "docker", problem, fix });
}
