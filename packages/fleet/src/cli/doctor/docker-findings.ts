/** What the docker backend needs: an engine that answers, an image, and what keeps its sandboxes apart. */

import { homedir } from "node:os";
import { isSandlotError } from "@sandlot/contract";
import { connectAppleEngine } from "../../backends/docker/apple/apple-engine.ts";
import { closingProblemWith } from "../../backends/docker/container/isolation.ts";
import { enginePlaces } from "../../backends/docker/engine/discovery.ts";
import { connectEngine } from "../../backends/docker/engine/docker-engine.ts";
import type { Engine } from "../../backends/docker/engine/engine.ts";
import type { Settings } from "../../config/settings.ts";
import type { Environment } from "../../config/variables.ts";
import { systemWorld } from "../../world/system-world.ts";
import type { Finding } from "./finding.ts";
import { closedDaemonFinding, remapFinding } from "./isolation-findings.ts";

/** `containerProgram` is Apple's `container`, as it is run. */
export async function dockerFindings(
  { docker }: Pick<Settings, "docker">,
  environment: Environment,
  containerProgram = "container",
): Promise<readonly Finding[]> {
  const isApple = docker.engine === "apple-container";
  const places = enginePlaces(docker.host, environment, homedir(), process.getuid?.() ?? 0);
  let engine: Engine;
  try {
    engine = await (isApple
      ? connectAppleEngine(containerProgram, systemWorld())
      : connectEngine(places, systemWorld()));
  } catch (error) {
    if (!isSandlotError(error)) throw error;
    return [{ name: "engine", status: "fail", detail: error.message, fix: isApple ? APPLE_FIX : ENGINE_FIX }];
  }
  try {
    if (isApple) return [appleFinding(engine), MACHINES, await imageFinding(engine, docker, "container image pull")];
    const closed = closedDaemonFinding(closingProblemWith(docker, engine.facts));
    const isolation = [seccompFinding(engine), closed, ...remapFinding(engine.facts.remapsUsers)];
    return [engineFinding(engine), ...isolation, await imageFinding(engine, docker, "docker pull")];
  } finally {
    engine.close();
  }
}

const ENGINE_FIX =
  "start the engine, or name it with docker.host or DOCKER_HOST; this account must be allowed to ask it";
const APPLE_FIX =
  "install Apple's container, 1.1 or newer, on macOS 26, and run `container system start`; or set docker.engine to docker";
/** There is no filter of system calls to look for. */
const MACHINES: Finding = {
  name: "isolation",
  status: "ok",
  detail: "every sandbox is a virtual machine with a kernel of its own",
};

function appleFinding({ facts }: Engine): Finding {
  return { name: "engine", status: "ok", detail: `Apple's container ${facts.apiVersion} (${facts.address})` };
}

function engineFinding({ facts }: Engine): Finding {
  const kind = facts.isPodman ? "Podman" : "Docker";
  const where = facts.isOnThisHost ? "" : ", on another machine";
  return { name: "engine", status: "ok", detail: `${kind} at ${facts.address}, API ${facts.apiVersion}${where}` };
}

function seccompFinding({ facts: { hasSeccomp } }: Engine): Finding {
  if (hasSeccomp) return { name: "seccomp", status: "ok", detail: "the engine filters system calls" };
  const detail = "the engine filters no system calls";
  return { name: "seccomp", status: "warn", detail, fix: "run an engine and a kernel with seccomp" };
}

async function imageFinding(engine: Engine, { image, pull }: Settings["docker"], command: string): Promise<Finding> {
  if ((await engine.image(image)) !== null) return { name: "image", status: "ok", detail: image };
  const fix = `${command} ${image}`;
  if (pull === "missing")
    return { name: "image", status: "warn", detail: `${image} is pulled when it is first used`, fix };
  return { name: "image", status: "fail", detail: `${image} is not there, and docker.pull is never`, fix };
}
