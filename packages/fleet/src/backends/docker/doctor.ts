/**
 * Checks what the docker backend needs: an engine that responds, an image, and isolation. With `docker.runtime: aio`
 * everything depends on the server in the image, so the doctor makes one sandbox and removes it.
 */

import { homedir } from "node:os";
import { isSandlotError, type SandlotError } from "@sandlot/contract";
import type { Finding } from "../../backend/doctor/finding.ts";
import { closedDaemonFinding, remapFinding } from "../../backend/doctor/isolation-findings.ts";
import type { Environment, Trial } from "../../backend/entry.ts";
import { systemWorld } from "../../world/system-world.ts";
import { connectAppleEngine } from "./apple/apple-engine.ts";
import type { DockerConfig } from "./config.ts";
import { closingProblemWith } from "./container/isolation.ts";
import { sharedAccountReason } from "./container-accounts.ts";
import { enginePlaces } from "./engine/discovery.ts";
import { connectEngine } from "./engine/docker-engine.ts";
import type { Engine } from "./engine/engine.ts";
import { type ConfiguredSettings, dockerSettings } from "./settings.ts";

const TRIAL_TIMEOUT_MS = 30_000;

export interface DoctorParts {
  readonly environment: Environment;
  readonly trial: Trial;
  /** The command of Apple's `container`. */
  readonly containerProgram?: string;
}

export async function dockerFindings(
  settings: ConfiguredSettings,
  { environment, trial, containerProgram = "container" }: DoctorParts,
): Promise<readonly Finding[]> {
  const { docker } = settings;
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
    const { facts } = engine;
    const own = dockerSettings(settings);
    const closed = own.speaksAio ? IMAGES_SERVER : closedDaemonFinding(closingProblemWith(docker, facts));
    const account = accountFinding(sharedAccountReason(own, facts), own.account.uid);
    const isolation = [seccompFinding(engine), account, closed, ...remapFinding(facts.remapsUsers)];
    const image = await imageFinding(engine, docker, "docker pull");
    const tried = own.speaksAio && image.status === "ok" ? [await trialFinding(trial)] : [];
    return [engineFinding(engine), ...isolation, image, ...tried];
  } finally {
    engine.close();
  }
}

const ENGINE_FIX =
  "start the engine, or name it with docker.host or DOCKER_HOST; this account must be allowed to ask it";
const APPLE_FIX =
  "install Apple's container, 1.1 or newer, on macOS 26, and run `container system start`; or set docker.engine to docker";
/** A virtual machine needs no filter of system calls. */
const MACHINES: Finding = {
  name: "isolation",
  status: "ok",
  detail: "every sandbox is a virtual machine with a kernel of its own",
};

/** The key of the image's server is in its environment, and the server runs as the commands' account. */
const IMAGES_SERVER: Finding = {
  name: "closed daemon",
  status: "warn",
  detail: "a command can take over the server of its own sandbox, and read its key: the image brings that server (aio)",
  fix: "leave docker.runtime: aio out where that matters; Sandlot's own daemon is closed to commands",
};

/** `shared` is why sandboxes share an account; `null` where each has its own. */
export function accountFinding(shared: string | null, uid: number): Finding {
  const name = "account";
  if (shared === null)
    return { name, status: "ok", detail: `every sandbox has an account of its own; files belong to uid ${uid}` };
  const detail = `sandboxes share uid ${uid}, and what the kernel gives one account: ${shared}`;
  const fix = "run the fleet as root on the machine of a rootful engine, with accountIds that it has";
  return { name, status: "warn", detail, fix };
}

async function trialFinding(trial: Trial): Promise<Finding> {
  const name = "trial sandbox";
  try {
    await trial(async (sandbox) => {
      const { exitCode } = await sandbox.exec("exit 7", { timeoutMs: TRIAL_TIMEOUT_MS });
      if (exitCode !== 7) throw new Error(`a command that ends with 7 ended with ${exitCode}`);
    });
    return { name, status: "ok", detail: "its server answered, asked for its key, and ran a command" };
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error);
    const fix = isSandlotError(error) ? fixOf(error) : "see docs/backends/docker.md, Images with a server of their own";
    return { name, status: "fail", detail, fix };
  }
}

function fixOf(error: SandlotError): string {
  return isSandlotError(error, "isolation_unavailable") ? error.details.fix : error.remedy;
}

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

async function imageFinding(engine: Engine, { image, pull }: DockerConfig, command: string): Promise<Finding> {
  if ((await engine.image(image)) !== null) return { name: "image", status: "ok", detail: image };
  const fix = `${command} ${image}`;
  if (pull === "missing")
    return { name: "image", status: "warn", detail: `${image} is pulled when it is first used`, fix };
  return { name: "image", status: "fail", detail: `${image} is not there, and docker.pull is never`, fix };
}
