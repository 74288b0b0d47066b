/**
 * Bodies that have not arrived yet, and the end of those that take too long. One timer looks after all of them: a body
 * that is late is ended after `stallMs`, or up to a quarter of that later.
 */

import type { IncomingMessage } from "node:http";
import type { World } from "../../world/world.ts";

export class AwaitedBodies {
  readonly #world: World;
  readonly #stallMs: number;
  /** Since when each is awaited, the oldest first. */
  readonly #since = new Map<IncomingMessage, number>();
  #isLooking = false;

  constructor(world: World, stallMs: number) {
    this.#world = world;
    this.#stallMs = stallMs;
  }

  /** From now on, also when it was awaited before. */
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
