/** How often a thread's new sandbox was a blank, and why it was none, since this process began. */

import type { PoolMiss } from "@sandlot/contract";
import type { EventBus } from "../../observe/event-bus.ts";

export class PoolTally {
  #hits = 0;
  readonly #misses = new Map<PoolMiss, number>();

  constructor(bus: EventBus) {
    bus.on(() => {
      this.#hits += 1;
    }, "sandbox-bound");
    bus.on((event) => {
      if (event.type !== "sandbox-created" || event.miss === undefined) return;
      this.#misses.set(event.miss, (this.#misses.get(event.miss) ?? 0) + 1);
    }, "sandbox-created");
  }

  get hits(): number {
    return this.#hits;
  }

  get misses(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#misses);
  }
}
