/**
 * The credentials and the address of a container's daemon: its socket, or the port that the engine has published.
 *
 * Invariant: silence does not mean death. A killed daemon comes back, on a new socket; a port forwarder may end by
 * itself. So the engine decides, and without its response no container counts as dead.
 */

import type { Credentials } from "../../backend/backend.ts";
import { type Layout, type ObjectName, socketPath } from "../../host/layout.ts";
import type { DiskWorkspaces } from "../../host/workspaces/disk-workspaces.ts";
import { type AskedObject, KnownCredentials } from "../../sandboxd/credentials.ts";
import type { DaemonTarget } from "../../sandboxd/index.ts";
import { sleep, within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import { publishedPort } from "./container/published-port.ts";
import type { Engine } from "./engine/engine.ts";
import type { ContainerLiveness } from "./liveness.ts";
import type { ContainerObjects } from "./objects/container-objects.ts";
import { formatRef } from "./objects/labels.ts";

/** A container that the engine still calls alive after this time counts as alive. */
const DEATH_KNOWN_MS = 1_000;
/** For an engine where every request starts a program. */
const DEATH_KNOWN_BY_PROGRAM_MS = 5_000;
/** A busy engine takes more than a second for one answer. After this time its silence says nothing about a death. */
const DEATH_ANSWER_MS = 5_000;
const DEATH_LOOK_MS = 50;

export interface CredentialParts {
  readonly world: World;
  readonly liveness: ContainerLiveness;
  readonly layout: Layout;
  readonly workspaces: DiskWorkspaces;
  readonly objects: ContainerObjects;
  readonly engine: Engine;
  /** The host on which published ports are reached. */
  readonly publishHost: string;
  /** Whether ports are published. */
  readonly publishes: boolean;
}

export class ContainerCredentials extends KnownCredentials {
  readonly #parts: CredentialParts;
  readonly #ports = new Map<ObjectName, number>();
  readonly #ending = new Set<ObjectName>();

  constructor(parts: CredentialParts) {
    super({
      address: (name) => ({ path: socketPath(parts.layout, name) }),
      given: (sandboxId) => parts.workspaces.markers.list(sandboxId),
    });
    this.#parts = parts;
  }

  /** Finds the daemon's address; it asks the engine only when the address is not recorded. */
  async locate(name: ObjectName): Promise<void> {
    const { objects, engine, publishes } = this.#parts;
    if (!publishes || this.#ports.has(name)) return;
    const object = await objects.get(name);
    if (object === null || object.record.transport === "socket" || object.container === null) return;
    const { containerId, hostPort } = object.container;
    const port = hostPort ?? (await publishedPort(engine, containerId));
    if (port !== null) this.#ports.set(name, port);
  }

  override async ask<T>(object: AskedObject, call: (target: DaemonTarget) => Promise<T>): Promise<T> {
    await this.locate(object.name);
    return super.ask(object, call);
  }

  override target(name: ObjectName, sandboxId: string, credentials: Credentials): DaemonTarget {
    const target = { ...super.target(name, sandboxId, credentials), isDead: () => this.#isDead(name) };
    const port = this.#ports.get(name);
    return port === undefined ? target : { ...target, address: { host: this.#parts.publishHost, port } };
  }

  /**
   * This process is destroying it: a lost connection needs no request to the engine, which may not respond meanwhile.
   */
  async whileEnding<T>(name: ObjectName, end: () => Promise<T>): Promise<T> {
    this.#ending.add(name);
    try {
      return await end();
    } finally {
      this.#ending.delete(name);
    }
  }

  /** An engine learns of a death a moment after the connection has broken. */
  async #isDead(name: ObjectName): Promise<boolean> {
    if (this.#ending.has(name)) return true;
    const { world, liveness, engine } = this.#parts;
    const knownMs = engine.facts.relaysSockets ? DEATH_KNOWN_BY_PROGRAM_MS : DEATH_KNOWN_MS;
    const ref = formatRef({ containerId: null, name });
    const until = world.monotonicMs() + knownMs;
    const look = async (signal: AbortSignal) => {
      for (;;) {
        const answer = await liveness.probe(ref);
        if (answer !== "alive" || world.monotonicMs() >= until) return answer === "dead";
        await sleep(world, DEATH_LOOK_MS, signal);
      }
    };
    return within(world, DEATH_ANSWER_MS, undefined, () => new Error("it lives"), look).catch(() => false);
  }

  override forget(name: ObjectName): void {
    super.forget(name);
    this.#ports.delete(name);
  }
}
