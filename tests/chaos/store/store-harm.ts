/**
 * The harm of a store's chaos: one fault after another, while the children of a run work over links of their own and
 * row clients commit. After each fault the rows are compared, and every child must get a lease again.
 */

import type { Harm, Scene } from "../../crash/control/crash-run.ts";
import { describeTime, withinOwnTime } from "../../crash/control/own-time.ts";
import type { Random } from "../../simulation/schedule/random.ts";
import type { ChaosDatabase } from "./chaos-database.ts";
import { FAULTS, type Fault, inflict } from "./faults.ts";
import type { Link } from "./link.ts";
import type { RowClients } from "./row-clients.ts";
import type { StoreTally } from "./store-tally.ts";

/** The kinds that a short run must not leave out come first. */
const FIRST: readonly Fault[] = [
  "failover",
  "half-open one",
  "reset in mid-answer",
  "cut all",
  "stalled one",
  "server killed",
  "delayed 50 ms",
  "half-open all",
];
/** Recovery from a lost store takes a session's lifetime, and an acquire may have to wait for a whole one. */
const USABLE_MAX_MS = 40_000;
const OPEN_MAX_MS = 60_000;

export class StoreHarm implements Harm {
  readonly #scene: Scene;
  readonly #database: ChaosDatabase;
  readonly #links: ReadonlyMap<string, Link>;
  readonly #rows: RowClients;
  readonly #tally: StoreTally;

  constructor(
    scene: Scene,
    parts: { database: ChaosDatabase; links: ReadonlyMap<string, Link>; rows: RowClients; tally: StoreTally },
  ) {
    this.#scene = scene;
    this.#database = parts.database;
    this.#links = parts.links;
    this.#rows = parts.rows;
    this.#tally = parts.tally;
  }

  async run(runs: number): Promise<number> {
    const { workers, processes, tally } = this.#scene;
    for (let started = 0; started < processes; started += 1) workers.launch();
    await this.#usable("the start", OPEN_MAX_MS);
    const deck = this.#deck(runs);
    let done = 0;
    for (const fault of deck) {
      if (tally.violations.length > 0) break;
      await this.#strike(fault);
      done += 1;
    }
    return done;
  }

  async heal(): Promise<void> {
    for (const link of this.#links.values()) link.heal();
    for (const link of this.#rows.links) link.heal();
    await this.#rows.check();
    await this.#rows.end();
  }

  async #strike(fault: Fault): Promise<void> {
    const { store, engine, random } = this.#scene;
    const before = (await store.meta()).epoch;
    const mayRewind = fault === "failover";
    if (mayRewind) await engine.ask("rewinding", [true]);
    const startedAt = performance.now();
    const links = () => [...this.#working(), ...this.#rows.links];
    await inflict(fault, { database: this.#database, links, random });
    engine.tell("guard", [this.#database.server.pids()]);
    const healedAt = performance.now();
    await this.#usable(fault, USABLE_MAX_MS);
    const usableMs = performance.now() - healedAt;
    await this.#rows.check();
    if (mayRewind) await engine.ask("rewinding", [false]);
    const { epoch } = await store.meta();
    if (epoch !== before && !mayRewind) this.#scene.tally.violated(`${fault} began a new epoch`);
    this.#tally.suffered(fault, { lastedMs: healedAt - startedAt, usableMs, isNewEpoch: epoch !== before });
  }

  #working(): readonly Link[] {
    return this.#scene.workers.active().flatMap(({ name }) => this.#links.get(name) ?? []);
  }

  /** Every child gets a lease. */
  async #usable(after: string, maxMs: number): Promise<void> {
    const { workers, signals, tally } = this.#scene;
    const waiting = new Set(workers.active());
    const stop = signals.listen((signal) => {
      if (signal.what === "leased" || signal.what === "gone") waiting.delete(signal.child);
    });
    const pids = () => [...waiting].map(({ pid }) => pid);
    const outcome = await withinOwnTime(maxMs, pids, () => (waiting.size === 0 ? true : null));
    stop();
    for (const { name } of waiting) tally.violated(`${name} got no lease in ${describeTime(outcome)} after ${after}`);
  }

  #deck(runs: number): readonly Fault[] {
    const { random } = this.#scene;
    const deck: Fault[] = [...FIRST, ...FAULTS.filter((fault) => !FIRST.includes(fault))];
    while (deck.length < runs) deck.push(...shuffled(FAULTS, random));
    return deck.slice(0, runs);
  }
}

function shuffled<T>(items: readonly T[], random: Random): readonly T[] {
  const left = [...items];
  return items.map(() => left.splice(random.between(0, left.length - 1), 1)[0] as T);
}
