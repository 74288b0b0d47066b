/**
 * Apple's `container` on macOS as an engine: a program and no API, every container in a virtual machine of its own.
 *
 *   call                  command
 *   which engine          container system status --format json
 *   list, inspect         container list --all --format json
 *   create, start         container create … ; container start <id>
 *   remove                container delete --force <id>
 *   output                container logs <id>
 *   images                container image inspect | pull
 *
 * It lacks pausing, events, ports that the engine picks, and networks whose members cannot reach each other.
 * docs/backends/docker.md says what the backend does instead.
 *
 * Invariants
 * - A container's id is its name, and no name is used twice: an id is as unique as with other engines.
 * - Only the whole list shows whether a container exists. A failed request about one container proves nothing.
 */

import { hostname } from "node:os";
import { Readable } from "node:stream";
import { SandlotError } from "@sandlot/contract";
import type { World } from "../../../world/world.ts";
import type {
  ContainerInspection,
  ContainerRequest,
  Engine,
  EngineFacts,
  ImageInspection,
  ListedContainer,
  NetworkInspection,
} from "../engine/engine.ts";
import { EngineRefusal, isRefusal, unavailable } from "../engine/trouble.ts";
import { containersSchema, inspectedImage, listed, statusSchema } from "./answers.ts";
import { polledEvents, polledOutput } from "./apple-watch.ts";
import { createArguments } from "./arguments.ts";
import { ContainerCommand } from "./command.ts";

const ASK_MS = 15_000;
/** A machine starts in about a second; the first one after an update unpacks its image and a kernel. */
const CHANGE_MS = 120_000;
/** The first with `--network none` and with sockets that work. */
const VERSION_MIN = [1, 1, 0] as const;
const RUNTIME = "container-runtime-linux";
const ARCHITECTURE = process.arch === "x64" ? "amd64" : process.arch;

/** Rejects with `engine_unavailable` when the program is missing or too old, or its services do not run. */
export async function connectAppleEngine(program: string, world: World): Promise<Engine> {
  const command = new ContainerCommand(program, world);
  return new AppleEngine(command, world, await factsFrom(command));
}

class AppleEngine implements Engine {
  readonly #command: ContainerCommand;
  readonly #world: World;
  /** Made here, and not started yet: it is listed as stopped. */
  readonly #unstarted = new Set<string>();
  #facts: EngineFacts;

  constructor(command: ContainerCommand, world: World, facts: EngineFacts) {
    this.#command = command;
    this.#world = world;
    this.#facts = facts;
  }

  get facts(): EngineFacts {
    return this.#facts;
  }

  async identify(): Promise<string> {
    this.#facts = await factsFrom(this.#command);
    return this.#facts.id;
  }

  async list(labels: readonly string[]): Promise<readonly ListedContainer[]> {
    const containers = await this.#containers();
    return containers.filter(({ Labels }) => labels.every((label) => hasLabel(Labels ?? {}, label)));
  }

  async inspect(containerId: string): Promise<ContainerInspection | null> {
    const found = (await this.#containers()).find(({ Id }) => Id === containerId);
    if (found === undefined) return null;
    const { Id, State, Labels } = found;
    return { Id, State: { Status: State }, Config: { Labels }, NetworkSettings: null };
  }

  async create(request: ContainerRequest): Promise<string> {
    const name = request.name ?? "";
    this.#unstarted.add(name);
    try {
      await this.#command.run(createArguments(request), CHANGE_MS);
      return name;
    } catch (error) {
      this.#unstarted.delete(name);
      throw error;
    }
  }

  async start(containerId: string): Promise<void> {
    await this.#command.run(["start", containerId], CHANGE_MS);
    this.#unstarted.delete(containerId);
  }

  async pause(): Promise<void> {
    throw new SandlotError("capability_missing", { backend: "docker", capability: "pause", neededBy: "a pause" });
  }

  /** There is no pausing here. */
  async unpause(): Promise<void> {}

  async remove(containerId: string): Promise<void> {
    try {
      await this.#command.run(["delete", "--force", containerId], CHANGE_MS);
    } catch (error) {
      if (!isRefusal(error, 404)) throw error;
    }
    this.#unstarted.delete(containerId);
  }

  async logTail(containerId: string, lines: number): Promise<string> {
    return (await this.#command.run(["logs", "-n", String(lines), containerId], ASK_MS)).stdout;
  }

  async output(containerId: string, signal: AbortSignal): Promise<NodeJS.ReadableStream> {
    const read = async () => (await this.#command.run(["logs", containerId], ASK_MS)).stdout;
    return polledOutput(read, this.#world, signal);
  }

  /** There is no network that a sandbox may join. */
  async network(): Promise<NetworkInspection | null> {
    return null;
  }

  async image(name: string): Promise<ImageInspection | null> {
    try {
      const { stdout } = await this.#command.run(["image", "inspect", name], ASK_MS);
      return inspectedImage(JSON.parse(stdout), ARCHITECTURE);
    } catch (error) {
      if (isRefusal(error, 404)) return null;
      throw error;
    }
  }

  /** Yields no progress: the program draws it for a terminal. */
  async pull(name: string, signal: AbortSignal): Promise<NodeJS.ReadableStream> {
    const args = ["image", "pull", "--progress", "none", "--platform", `linux/${ARCHITECTURE}`, name];
    const command = this.#command;
    async function* lines(): AsyncGenerator<string> {
      try {
        await command.runUntil(args, signal);
      } catch (error) {
        if (!(error instanceof EngineRefusal)) throw error;
        yield `${JSON.stringify({ error: error.message })}\n`;
      }
    }
    return Readable.from(lines());
  }

  async events(labels: readonly string[], _since: number, signal: AbortSignal): Promise<NodeJS.ReadableStream> {
    return polledEvents(() => this.list(labels), this.#world, signal);
  }

  close(): void {}

  async #containers(): Promise<readonly ListedContainer[]> {
    const { stdout } = await this.#command.run(["list", "--all", "--format", "json"], ASK_MS);
    const containers = containersSchema.parse(JSON.parse(stdout));
    return containers.map((container) => listed(container, (id) => this.#unstarted.has(id)));
  }
}

async function factsFrom(command: ContainerCommand): Promise<EngineFacts> {
  const { program } = command;
  const { stdout } = await command.run(["system", "status", "--format", "json"], ASK_MS);
  const { status, appRoot, apiServerVersion } = statusSchema.parse(JSON.parse(stdout));
  if (status !== "running") throw unavailable(`its services are ${status}: container system start`, [program]);
  const version = /\d+(?:\.\d+)+/.exec(apiServerVersion)?.[0] ?? "";
  if (isOlder(version))
    throw unavailable(`version ${version || "unknown"}; ${VERSION_MIN.join(".")} is needed`, [program]);
  return {
    // The directory of its containers, on this machine.
    id: `apple:${hostname()}:${appRoot}`,
    address: `exec:${program}`,
    apiVersion: version,
    isPodman: false,
    isRootless: false,
    remapsUsers: false,
    hasSeccomp: false,
    runtimes: [RUNTIME],
    defaultRuntime: RUNTIME,
    isOnThisHost: false,
    relaysSockets: true,
    canPause: false,
    ceilings: null,
  };
}

function isOlder(version: string): boolean {
  const parts = version.split(".").map(Number);
  for (const [index, least] of VERSION_MIN.entries()) {
    const difference = (parts[index] ?? 0) - least;
    if (difference !== 0) return !(difference > 0);
  }
  return false;
}

function hasLabel(labels: Readonly<Record<string, string>>, wanted: string): boolean {
  const at = wanted.indexOf("=");
  return at < 0 ? wanted in labels : labels[wanted.slice(0, at)] === wanted.slice(at + 1);
}
