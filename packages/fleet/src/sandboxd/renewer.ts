/**
 * Renews sandboxes: tells their daemons that the fleet still runs. A daemon without a renewal for long enough ends its
 * sandbox, so that a fleet which is gone for good leaves nothing. Parked sandboxes, which have no holder, must not end
 * because of that.
 *
 * Invariants
 * - At most `AT_ONCE_MAX` renewals at once: each is a connection of its own, and thousands would stop the event loop.
 * - A round of many sandboxes does not wait long for one that is silent, so those that respond are renewed in time.
 */

import { within } from "../world/waiting.ts";
import type { Timer, World } from "../world/world.ts";
import type { AskedObject, KnownCredentials } from "./credentials.ts";
import { renewDaemon } from "./index.ts";

/** The objects of a backend whose daemons are reached from this host. */
export interface Renewed {
  names(): Promise<readonly string[]>;
  /** The object, if it is alive as far as is known without a request to its daemon. */
  living(name: string): Promise<AskedObject | null>;
}

/** One round may be late, and one may be lost, before a daemon counts itself as an orphan. */
const ROUNDS_PER_TIMEOUT = 3;
const AT_ONCE_MAX = 128;
/** A silent one may take this part of the interval, where others wait for its turn. */
const WAITING_SHARE = 4;

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
    const isLong = names.length > AT_ONCE_MAX;
    const limitMs = isLong ? Math.ceil(this.#intervalMs / WAITING_SHARE) : this.#intervalMs;
    const left = names[Symbol.iterator]();
    const work = async () => {
      for (const name of left) if (!this.#stopped) await this.#renew(name, limitMs);
    };
    await Promise.all(Array.from({ length: Math.min(names.length, AT_ONCE_MAX) }, work));
    this.start();
  }

  /** A daemon that does not respond is dead or in trouble, and other checks find both. */
  async #renew(name: string, limitMs: number): Promise<void> {
    try {
      const object = await this.#renewed.living(name);
      if (object === null) return;
      await within(
        this.#world,
        limitMs,
        undefined,
        () => new Error("no answer"),
        (signal) => this.#credentials.ask(object, (target) => renewDaemon(target, signal)),
      );
    } catch {
      return;
    }
  }
}
