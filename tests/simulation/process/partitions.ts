/**
 * Cut links: a host that does not reach the store, or its engine, for a while. Requests across a cut link have no
 * effect, and get an error or no answer at all.
 */

import type { Scheduler } from "../schedule/scheduler.ts";
import type { Host } from "./host.ts";

export type Link = "store" | "engine";

export class Partitions {
  readonly #scheduler: Scheduler;
  readonly #until = new Map<string, number>();

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler;
  }

  /** `Infinity`: until everything heals. */
  cut(host: Host, link: Link, forMs: number): void {
    const until = this.#scheduler.now + forMs;
    this.#until.set(keyOf(host, link), Math.max(until, this.#until.get(keyOf(host, link)) ?? 0));
  }

  isCut(host: Host, link: Link): boolean {
    return this.#scheduler.now < (this.#until.get(keyOf(host, link)) ?? 0);
  }

  isCutForGood(host: Host, link: Link): boolean {
    return this.#until.get(keyOf(host, link)) === Number.POSITIVE_INFINITY;
  }

  heal(): void {
    this.#until.clear();
  }
}

function keyOf({ name }: Host, link: Link): string {
  return `${name} ${link}`;
}
