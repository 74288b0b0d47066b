/**
 * Cut links of runs with several engines: between a host and the store, between a host and its engine, and between an
 * engine and all its hosts until everything heals. Each is on in some of these runs only.
 */

import type { Host } from "../process/host.ts";
import type { Link } from "../process/partitions.ts";
import type { Random } from "../schedule/random.ts";
import type { Simulation } from "../simulation.ts";

/** The share of runs with a kind of cut, and its chance at every event of such a run. */
const CUTS = {
  store: { runs: 0.5, share: 0.02 },
  engine: { runs: 0.5, share: 0.02 },
  forGood: { runs: 0.25, share: 0.01 },
} as const;

export class Cuts {
  readonly #simulation: Simulation;
  readonly #random: Random;
  readonly #shares: Readonly<Record<keyof typeof CUTS, number>>;
  #isForGood = false;

  constructor(simulation: Simulation, random: Random) {
    this.#simulation = simulation;
    this.#random = random;
    const share = (kind: keyof typeof CUTS) => (random.chance(CUTS[kind].runs) ? CUTS[kind].share : 0);
    this.#shares = { store: share("store"), engine: share("engine"), forGood: share("forGood") };
  }

  /** Called with every event of the workload. */
  happen(): void {
    if (!this.#simulation.engines.isShared) return;
    if (this.#random.chance(this.#shares.store)) this.#cut("store");
    if (this.#random.chance(this.#shares.engine)) this.#cut("engine");
    if (!this.#isForGood && this.#random.chance(this.#shares.forGood)) this.#cutForGood();
  }

  /** Some seconds to several lifetimes of a session. */
  #cut(link: Link): void {
    const { hosts, settings } = this.#simulation;
    const { sessionLifetimeMs } = settings;
    const forMs = this.#random.pick([2_000, sessionLifetimeMs / 2, 1.5 * sessionLifetimeMs, 4 * sessionLifetimeMs]);
    this.#begin(this.#random.pick(hosts), link, forMs);
  }

  #cutForGood(): void {
    const { hosts, engines } = this.#simulation;
    const engine = this.#random.pick(engines.names);
    this.#isForGood = true;
    for (const host of hosts)
      if (this.#simulation.engineOf(host) === engine) this.#begin(host, "engine", Number.POSITIVE_INFINITY);
  }

  #begin(host: Host, link: Link, forMs: number): void {
    this.#simulation.trace.add(host.name, `cut off from the ${link}`, () => `for ${forMs} ms`);
    this.#simulation.partitions.cut(host, link, forMs);
  }
}
