/**
 * Telling the daemons that their fleet is still there. A daemon that hears nothing for long enough ends its sandbox, so
 * that a fleet which is gone for good leaves nothing; parked sandboxes, which nobody holds, must not end because of it.
 */

import { renewDaemon } from "../../daemon/index.ts";
import { within } from "../../world/waiting.ts";
import type { Timer, World } from "../../world/world.ts";
import type { KnownCredentials } from "./credentials.ts";
import type { ContainerObjects } from "./objects/container-objects.ts";

/** A round may be late, and one may be lost, before a daemon takes itself for an orphan. */
const ROUNDS_PER_TIMEOUT = 3;

export class Renewer {
  readonly #world: World;
  readonly #objects: ContainerObjects;
  readonly #credentials: KnownCredentials;
  readonly #intervalMs: number;
  #timer: Timer | null = null;
  #stopped = false;

  constructor(world: World, objects: ContainerObjects, credentials: KnownCredentials, orphanTimeoutMs: number) {
    this.#world = world;
    this.#objects = objects;
    this.#credentials = credentials;
    this.#intervalMs = Math.max(1, Math.floor(orphanTimeoutMs / ROUNDS_PER_TIMEOUT));
  }

  start(): void {
    if (this.#stopped) return;
    this.#timer = this.#world.timer(this.#intervalMs, () => void this.#round(), { background: true });
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  async #round(): Promise<void> {
    const names = await this.#objects.names().catch(() => []);
    await Promise.all(names.map((name) => this.#renew(name)));
    this.start();
  }

  /** One that does not answer is dead or in trouble, and both are found by whoever looks at it. */
  async #renew(name: string): Promise<void> {
    try {
      const object = await this.#objects.get(name);
      if (object === null || object.container === null || object.isRemains) return;
      const late = () => new Error("no answer");
      await within(this.#world, this.#intervalMs, undefined, late, (signal) =>
        this.#credentials.ask(object, (target) => renewDaemon(target, signal)),
      );
    } catch {
      return;
    }
  }
}
