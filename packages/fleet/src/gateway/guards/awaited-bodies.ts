/**
 * Request bodies that have not arrived yet. One timer for all ends those that take too long: after `stallMs`, or up to
 * a quarter of that later.
 */

import type { IncomingMessage } from "node:http";
import type { World } from "../../world/world.ts";

export class AwaitedBodies {
  readonly #world: World;
  readonly #stallMs: number;
  /** When the wait for each began, the oldest first. */
  readonly #since = new Map<IncomingMessage, number>();
  #isLooking = false;

  constructor(world: World, stallMs: number) {
    this.#world = world;
    this.#stallMs = stallMs;
  }

  /** Restarts the wait if there was one. */
  await(raw: IncomingMessage): void {
    if (raw.complete || hasNoBody(raw)) return;
    this.#since.delete(raw);
    this.#since.set(raw, this.#world.monotonicMs());
    if (!this.#isLooking) this.#lookLater();
  }

  forget(raw: IncomingMessage): void {
    this.#since.delete(raw);
  }

  #lookLater(): void {
    this.#isLooking = true;
    this.#world.timer(this.#stallMs / 4, () => this.#look(), { background: true });
  }

  #look(): void {
    const now = this.#world.monotonicMs();
    for (const [raw, since] of this.#since) {
      const isOver = raw.complete || raw.destroyed;
      if (!isOver && now - since < this.#stallMs) continue;
      this.#since.delete(raw);
      if (!isOver) raw.destroy();
    }
    this.#isLooking = false;
    if (this.#since.size > 0) this.#lookLater();
  }
}

function hasNoBody({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] === undefined && (headers["content-length"] ?? "0") === "0";
}
