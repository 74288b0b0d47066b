/**
 * Telling the daemons that their fleet is still there. A daemon that hears nothing for long enough ends its sandbox, so
 * that a fleet which is gone for good leaves nothing; parked sandboxes, which nobody holds, must not end because of it.
 */

import { within } from "../world/waiting.ts";
import type { Timer, World } from "../world/world.ts";
import type { AskedObject, KnownCredentials } from "./credentials.ts";
import { renewDaemon } from "./index.ts";

/** What is renewed: the objects of a backend whose daemons are reached from this host. */
export interface Renewed {
  names(): Promise<readonly string[]>;
  /** The object, if it is alive as far as can be told without asking its daemon. */
  living(name: string): Promise<AskedObject | null>;
}

/** A round may be late, and one may be lost, before a daemon takes itself for an orphan. */
const ROUNDS_PER_TIMEOUT = 3;

export class Renewer {
  readonly #world: World;
  readonly #renewed: Renewed;
  readonly #credentials: KnownCredentials;
  readonly #intervalMs: number;
  #timer: Timer | null = null;
  #stopped = false;

  constructor(world: World, renewed: Renewed, credentials: KnownCredentials, orphanTimeoutMs: number) {
    this.#world = world;
    this.#renewed = renewed;
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
    const names = await this.#renewed.names().catch(() => []);
    await Promise.all(names.map((name) => this.#renew(name)));
    this.start();
  }

  /** One that does not answer is dead or in trouble, and both are found by whoever looks at it. */
  async #renew(name: string): Promise<void> {
    try {
      const object = await this.#renewed.living(name);
      if (object === null) return;
      await within(
        this.#world,
        this.#intervalMs,
        undefined,
        () => new Error("no answer"),
        (signal) => this.#credentials.ask(object, (target) => renewDaemon(target, signal)),
      );
    } catch {
      return;
    }
  }
}
