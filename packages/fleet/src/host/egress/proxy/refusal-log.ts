/** Refusals: the latest for a client inside, and each one for the fleet, up to a rate. */

import type { World } from "../../../world/world.ts";
import type { EgressLimits } from "../limits.ts";
import type { Refusal } from "../rules/decide.ts";

/** `untold` counts the refusals since the last reported one. */
export type OnRefused = (refusal: Refusal, untold: number) => void;

export class RefusalLog {
  readonly latest: Refusal[] = [];
  readonly #world: World;
  readonly #limits: EgressLimits;
  readonly #tell: OnRefused;
  #secondBeganMs = Number.NEGATIVE_INFINITY;
  #toldInSecond = 0;
  #untold = 0;

  constructor(world: World, limits: EgressLimits, tell: OnRefused = () => {}) {
    this.#world = world;
    this.#limits = limits;
    this.#tell = tell;
  }

  note(refusal: Refusal): void {
    this.latest.push(refusal);
    if (this.latest.length > this.#limits.refusalsKept) this.latest.shift();
    const nowMs = this.#world.monotonicMs();
    if (nowMs - this.#secondBeganMs >= 1_000) {
      this.#secondBeganMs = nowMs;
      this.#toldInSecond = 0;
    }
    if (this.#toldInSecond >= this.#limits.refusalsToldPerSecond) {
      this.#untold += 1;
      return;
    }
    this.#toldInSecond += 1;
    this.#tell(refusal, this.#untold);
    this.#untold = 0;
  }
}
