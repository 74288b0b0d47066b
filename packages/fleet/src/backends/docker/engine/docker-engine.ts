/**
 * The connection to one engine that speaks Docker's API.
 *
 *   connectEngine ─▶ the first place that responds ─▶ API version agreed on ─▶ facts about the engine
 *
 * A connection that breaks half-way through a response fails by the deadline of its request at the latest.
 */

import { readFileSync } from "node:fs";
import { Agent } from "node:http";
import { Agent as SecureAgent } from "node:https";
import { join } from "node:path";
import { inspect } from "node:util";
import { SandlotError } from "@sandlot/contract";
import type Docker from "dockerode";
import type { z } from "zod";
import { importPeer } from "../../../optional-peer.ts";
import { within } from "../../../world/waiting.ts";
import type { World } from "../../../world/world.ts";
import { plainOutput } from "../container/announcement.ts";
import {
  createSchema,
  imageSchema,
  infoSchema,
  inspectSchema,
  listSchema,
  networkSchema,
  versionSchema,
} from "./answers.ts";
import type { EnginePlace } from "./discovery.ts";
import type {
  ContainerInspection,
  ContainerRequest,
  Engine,
  EngineFacts,
  ImageInspection,
  ListedContainer,
  NetworkInspection,
} from "./engine.ts";
import { ownLimits } from "./own-limits.ts";
import { engineError, isRefusal, unavailable } from "./trouble.ts";

const API_VERSION_MIN = "1.41";
/** The newest version that was tested. Newer engines speak it, too. */
const API_VERSION_MAX = "1.51";

const ASK_MS = 15_000;
/** For create and start: many times what a loaded engine takes. */
const CHANGE_MS = 60_000;
const FIRST_ANSWER_MS = 5_000;

/** The first of the places that responds. Rejects with `engine_unavailable` and the places that were tried. */
export async function connectEngine(places: readonly EnginePlace[], world: World): Promise<Engine> {
  const library = await loadLibrary();
  const tried: string[] = [];
  for (const place of places) {
    try {
      return await DockerEngine.open(library, place, world);
    } catch (error) {
      const problem =
        error instanceof SandlotError && "problem" in error.details ? error.details.problem : String(error);
      tried.push(`${place.address} (${place.from}): ${problem}`);
    }
  }
  throw unavailable("no engine was found", tried);
}

async function loadLibrary(): Promise<typeof Docker> {
  return (await importPeer("dockerode", "The docker backend", () => import("dockerode"))).default;
}

/**
 * The library formats every request for its log, with all open connections, even when logging is off. That would block
 * this process for longer than the engine takes to respond.
 */
function quiet(agent: Agent): Agent {
  return Object.defineProperty(agent, inspect.custom, { value: () => "Agent" });
}

class DockerEngine implements Engine {
  readonly #docker: Docker;
  readonly #world: World;
  readonly #agent: Agent;
  #facts: EngineFacts;

  private constructor(docker: Docker, world: World, agent: Agent, facts: EngineFacts) {
    this.#docker = docker;
    this.#world = world;
    this.#agent = agent;
    this.#facts = facts;
  }

  static async open(library: typeof Docker, place: EnginePlace, world: World): Promise<DockerEngine> {
    const { address } = place;
    const options = connectionOptions(place);
    const agent = quiet(
      options.protocol === "https" ? new SecureAgent({ keepAlive: true }) : new Agent({ keepAlive: true }),
    );
    try {
      const where: Docker.DockerOptions & { agent: Agent } = { ...options, agent };
      const first = new library(where);
      // A ping shows soon whether the engine is there. Its details may take longer: Podman queries the system's
      // packages.
      await answered(world, address, FIRST_ANSWER_MS, () => first.ping());
      const ask = <T>(call: (signal: AbortSignal) => Promise<T>) => answered(world, address, ASK_MS, call);
      const version = versionSchema.parse(await ask(() => first.version()));
      const apiVersion = agreedVersion(version.ApiVersion, version.MinAPIVersion, address);
      const docker = new library({ ...where, version: `v${apiVersion}` });
      const isPodman = (version.Components ?? []).some(({ Name }) => Name.startsWith("Podman"));
      const info = infoSchema.parse(await ask(() => docker.info()));
      return new DockerEngine(docker, world, agent, factsOf(address, apiVersion, isPodman, info));
    } catch (error) {
      agent.destroy();
      throw engineError(error, address);
    }
  }

  get facts(): EngineFacts {
    return this.#facts;
  }

  /** Asks for the engine's present identity: another may have taken its place. */
  async identify(): Promise<string> {
    const info = infoSchema.parse(await this.#ask(ASK_MS, () => this.#docker.info()));
    const { isPodman, address, apiVersion } = this.#facts;
    this.#facts = factsOf(address, apiVersion, isPodman, info);
    return this.#facts.id;
  }

  async inspect(containerId: string): Promise<ContainerInspection | null> {
    return this.#found(ASK_MS, inspectSchema, () => this.#docker.getContainer(containerId).inspect());
  }

  /** Everything with these labels, running or not. */
  async list(labels: readonly string[]): Promise<readonly ListedContainer[]> {
    const options = { all: true, filters: { label: [...labels] } };
    return listSchema.parse(await this.#ask(ASK_MS, () => this.#docker.listContainers(options)));
  }

  async create(options: ContainerRequest): Promise<string> {
    const made = await this.#ask(CHANGE_MS, () => this.#docker.createContainer(options));
    return createSchema.parse({ Id: made.id }).Id;
  }

  async start(containerId: string): Promise<void> {
    await this.#ask(CHANGE_MS, () => this.#docker.getContainer(containerId).start());
  }

  /** Stops its processes, which keep their memory. */
  async pause(containerId: string): Promise<void> {
    await this.#ask(CHANGE_MS, () => this.#docker.getContainer(containerId).pause());
  }

  async unpause(containerId: string): Promise<void> {
    await this.#ask(CHANGE_MS, () => this.#docker.getContainer(containerId).unpause());
  }

  /** Ends and removes it, with its anonymous volumes. A container that is gone, or is being removed, is fine. */
  async remove(containerId: string): Promise<void> {
    try {
      await this.#ask(CHANGE_MS, () => this.#docker.getContainer(containerId).remove({ force: true, v: true }));
    } catch (error) {
      if (!isRefusal(error, 404) && !isRefusal(error, 409)) throw error;
    }
  }

  /** The last lines of its first process's output. */
  async logTail(containerId: string, lines: number): Promise<string> {
    const options = { stdout: true, stderr: true, tail: lines, follow: false } as const;
    const raw = await this.#ask(ASK_MS, () => this.#docker.getContainer(containerId).logs(options));
    return Buffer.isBuffer(raw) ? plainOutput(raw) : typeof raw === "string" ? raw : "";
  }

  /** Its output from the start on, as it arrives, until the signal fires or the output ends. */
  async output(containerId: string, signal: AbortSignal): Promise<NodeJS.ReadableStream> {
    const options = { stdout: true, stderr: false, follow: true, abortSignal: signal } as const;
    return this.#raw(() => this.#docker.getContainer(containerId).logs(options), signal);
  }

  async network(name: string): Promise<NetworkInspection | null> {
    return this.#found(ASK_MS, networkSchema, () => this.#docker.getNetwork(name).inspect());
  }

  async image(name: string): Promise<ImageInspection | null> {
    return this.#found(ASK_MS, imageSchema, () => this.#docker.getImage(name).inspect());
  }

  /** A stream of lines, one JSON document each, while the engine pulls. */
  async pull(name: string, signal: AbortSignal): Promise<NodeJS.ReadableStream> {
    // A name without a tag would mean all of them. With a request body, an engine does not notice that the client
    // disconnects.
    const fromImage = /[:@][^/]*$/.test(name) ? name : `${name}:latest`;
    const options = { _query: { fromImage }, _body: {}, abortSignal: signal };
    return this.#raw(() => this.#docker.createImage(options), signal);
  }

  /** A stream of lines, one JSON document each. `sinceSeconds` may have a fraction. */
  async events(labels: readonly string[], sinceSeconds: number, signal: AbortSignal): Promise<NodeJS.ReadableStream> {
    const filters = { type: ["container" as const], label: [...labels] };
    const options: Docker.GetEventsOptions & { abortSignal: AbortSignal } = {
      ...{ since: sinceSeconds, filters },
      abortSignal: signal,
    };
    return this.#raw(() => this.#docker.getEvents(options), signal);
  }

  close(): void {
    this.#agent.destroy();
  }

  async #found<T>(ms: number, schema: z.ZodType<T>, call: () => Promise<unknown>): Promise<T | null> {
    try {
      return schema.parse(await this.#ask(ms, call));
    } catch (error) {
      if (isRefusal(error, 404)) return null;
      throw error;
    }
  }

  #ask<T>(ms: number, call: () => Promise<T>): Promise<T> {
    return answered(this.#world, this.#facts.address, ms, call);
  }

  async #raw<T>(call: () => Promise<T>, signal: AbortSignal): Promise<T> {
    try {
      return await call();
    } catch (error) {
      signal.throwIfAborted();
      throw engineError(error, this.#facts.address);
    }
  }
}

async function answered<T>(
  world: World,
  address: string,
  ms: number,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  try {
    return await within(world, ms, undefined, () => unavailable(`no answer within ${ms} ms`, [address]), call);
  } catch (error) {
    throw engineError(error, address);
  }
}

function connectionOptions({ address, certificates }: EnginePlace): Docker.DockerOptions {
  // Each is set explicitly: the library reads missing ones from the environment.
  const nothing = { host: undefined, port: undefined, socketPath: undefined } as unknown as Docker.DockerOptions;
  const [, scheme = "", rest = ""] = /^([a-z]+):\/\/(.*)$/.exec(address) ?? [];
  if (scheme === "unix" || scheme === "npipe") return { ...nothing, socketPath: rest, protocol: "http" };
  if (scheme === "tcp" || scheme === "http" || scheme === "https") {
    const { hostname, port } = new URL(`http://${rest}`);
    const secure = scheme === "https" || port === "2376" || certificates !== undefined;
    const where = { ...nothing, host: hostname, port: port || (secure ? "2376" : "2375") };
    return { ...where, protocol: secure ? "https" : "http", ...keysIn(certificates, address) };
  }
  throw unavailable("such an address cannot be used; unix:// and tcp:// can", [address]);
}

/** The keys for mutual TLS with the engine. */
function keysIn(directory: string | undefined, address: string): Pick<Docker.DockerOptions, "ca" | "cert" | "key"> {
  if (directory === undefined) return {};
  const read = (name: string) => readFileSync(join(directory, name));
  try {
    return { ca: read("ca.pem"), cert: read("cert.pem"), key: read("key.pem") };
  } catch (error) {
    throw unavailable(`its certificates cannot be read: ${(error as Error).message}`, [address], error);
  }
}

/** The newest version that both speak. */
export function agreedVersion(newest: string, oldest: string | undefined, address: string): string {
  const chosen = compareVersions(newest, API_VERSION_MAX) < 0 ? newest : API_VERSION_MAX;
  const isTooOld = compareVersions(newest, API_VERSION_MIN) < 0;
  const isTooNew = oldest !== undefined && compareVersions(oldest, API_VERSION_MAX) > 0;
  if (!isTooOld && !isTooNew) return chosen;
  const problem = `it speaks versions ${oldest ?? "?"} to ${newest} of the API; ${API_VERSION_MIN} to ${API_VERSION_MAX} are understood`;
  throw unavailable(problem, [address]);
}

function compareVersions(a: string, b: string): number {
  const [majorA = 0, minorA = 0] = a.split(".").map(Number);
  const [majorB = 0, minorB = 0] = b.split(".").map(Number);
  return majorA - majorB || minorA - minorB;
}

/** Podman returns another id in every response; its host name and storage directory stay the same. */
function identityOf({ ID, Name = "", DockerRootDir = "" }: z.infer<typeof infoSchema>, isPodman: boolean): string {
  return isPodman ? `podman:${Name}:${DockerRootDir}` : ID;
}

function factsOf(
  address: string,
  apiVersion: string,
  isPodman: boolean,
  info: z.infer<typeof infoSchema>,
): EngineFacts {
  const options = (info.SecurityOptions ?? []).map((option) => option.replace(/^name=/, "").split(",")[0] ?? "");
  const isDesktop = /docker desktop/i.test(info.OperatingSystem ?? "");
  const isOnThisHost = address.startsWith("unix://") && !isDesktop && process.platform === "linux";
  return {
    id: identityOf(info, isPodman),
    address,
    apiVersion,
    isPodman,
    isRootless: options.includes("rootless"),
    remapsUsers: options.includes("userns"),
    hasSeccomp: (info.SecurityOptions ?? []).some((option) => /^(?:name=)?seccomp(?!.*unconfined)/.test(option)),
    runtimes: Object.keys(info.Runtimes ?? {}),
    defaultRuntime: info.DefaultRuntime ?? "runc",
    isOnThisHost,
    relaysSockets: false,
    canPause: true,
    ceilings: isPodman && isOnThisHost ? ownLimits() : null,
  };
}
