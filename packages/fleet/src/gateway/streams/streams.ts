/** The open streams of this gateway: how many each user has, and how they end when the gateway stops. */

import { SandlotError, type UserId } from "@sandlot/contract";
import type { GatewaySettings } from "../../config/gateway-settings.ts";

export class Streams {
  readonly #max: number;
  readonly #counts = new Map<string, number>();
  readonly #open = new Set<Promise<unknown>>();

  constructor({ streamsPerUserMax }: GatewaySettings) {
    this.#max = streamsPerUserMax;
  }

  get openCount(): number {
    return this.#open.size;
  }

  /** Runs a stream to its end, counted. */
  async run<T>(user: UserId | null, work: () => Promise<T>): Promise<T> {
    const name = user ?? "";
    const count = this.#counts.get(name) ?? 0;
    if (count >= this.#max)
      throw new SandlotError("rate_limited", { scope: "open streams", max: this.#max, retryAfterMs: 1_000 });
    this.#counts.set(name, count + 1);
    const running = work();
    this.#open.add(running);
    try {
      return await running;
    } finally {
      this.#open.delete(running);
      const left = (this.#counts.get(name) ?? 1) - 1;
      if (left === 0) this.#counts.delete(name);
      else this.#counts.set(name, left);
    }
  }

  /** Resolves when all streams that are open now have ended. */
  async settled(): Promise<void> {
    await Promise.allSettled([...this.#open]);
  }
}
