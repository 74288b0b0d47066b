/**
 * The cycles of a run: each takes one child, in a rarely hit state or at random, and kills it or stops it, sometimes
 * for longer than a session lives. Where the database is a server, some cycles harm the server instead.
 *
 * Invariant: at least two children are at work at any time, so that one can notice the death of another.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { StoreServer } from "../database/database.ts";
import { RECORDS_MAX } from "../settings.ts";
import type { Child } from "./child-process.ts";
import type { Harm, Scene } from "./crash-run.ts";
import { ServerFaults } from "./server-faults.ts";
import { faultsOf, type StateHit, statesOf } from "./states.ts";
import type { Caught, Steering } from "./steering.ts";

export interface CyclesParts extends Pick<Scene, "workers" | "engine" | "store" | "tally" | "random" | "processes"> {
  readonly steering: Steering;
  /** `null`: the database is a file. */
  readonly server: StoreServer | null;
  readonly sessionLifetimeMs: number;
}

const KILL_SHARE = 0.68;
/** Of the cycles, where there is a server. */
const SERVER_SHARE = 0.12;
const STEERED_SHARE = 0.75;
const LONG_STOP_SHARE = 0.35;
/** Of the calls of a killed or stopped process, how many get lost, and how many land late. */
const LOST_SHARE = 0.2;
const LATE_SHARE = 0.4;
const LATE_MAX_MS = 2_500;
const GAP_MAX_MS = 50;
const AT_WORK_MIN = 2;
/** How many processes beyond the requested number may exist while others are stopped. */
const STILL_MAX = 2;

export class Cycles implements Harm {
  readonly #parts: CyclesParts;
  readonly #resumptions = new Map<Child, NodeJS.Timeout>();
  readonly #serverFaults: ServerFaults | null;

  constructor(parts: CyclesParts) {
    this.#parts = parts;
    const { server, tally, random, sessionLifetimeMs } = parts;
    const onChanged = () => parts.engine.tell("guard", [server?.pids() ?? []]);
    this.#serverFaults =
      server === null ? null : new ServerFaults({ server, tally, random, sessionLifetimeMs, onChanged });
  }

  /** Resolves with the number of cycles: fewer than requested when a violation was found. */
  async run(cycles: number): Promise<number> {
    const { workers, processes, tally, random } = this.#parts;
    for (let started = 0; started < processes; started += 1) workers.launch();
    // A kill before any child has worked leaves nothing to find.
    while (workers.active().filter(({ isOpen }) => isOpen).length < AT_WORK_MIN && tally.violations.length === 0)
      await sleep(20);
    let done = 0;
    while (done < cycles && tally.violations.length === 0) {
      if (await this.#cycle()) done += 1;
      // Stopped ones cost nothing; others work meanwhile.
      const still = workers.active().filter(({ isStopped }) => isStopped).length;
      while (workers.active().length < processes + Math.min(still, STILL_MAX)) workers.launch();
      await sleep(random.between(0, GAP_MAX_MS));
    }
    return done;
  }

  /** Continues all stopped children, and the server. */
  async heal(): Promise<void> {
    await this.#serverFaults?.heal();
    for (const child of [...this.#resumptions.keys()]) this.#resume(child);
  }

  async #cycle(): Promise<boolean> {
    const { workers, steering, tally, random } = this.#parts;
    if (this.#serverFaults !== null && random.chance(SERVER_SHARE)) return this.#serverFaults.strike();
    const isKill = random.chance(KILL_SHARE);
    const isEligible = (child: Child) => this.#isEligible(child, isKill);
    const state = random.chance(STEERED_SHARE) ? tally.scarce(random) : null;
    const caught = workers.active().some(isEligible) ? await steering.catch(state, isEligible) : null;
    if (caught === null) {
      await sleep(10);
      return false;
    }
    await this.#strike(caught, isKill);
    return true;
  }

  #isEligible(child: Child, isKill: boolean): boolean {
    if (child.isGone || child.wentAt === null) return false;
    const atWork = this.#parts.workers.active().filter(({ isStopped }) => !isStopped).length;
    if (!isKill) return !child.isStopped && atWork > AT_WORK_MIN;
    return child.protectedUntil < performance.now() && (child.isStopped || atWork > AT_WORK_MIN);
  }

  async #strike(caught: Caught, isKill: boolean): Promise<void> {
    const { engine } = this.#parts;
    if (isKill) await this.#kill(caught.child);
    else await this.#stop(caught.child);
    if (caught.held !== null) engine.tell("decide", [caught.held, this.#decision()]);
  }

  async #kill(child: Child): Promise<void> {
    const { workers, tally } = this.#parts;
    this.#forget(child);
    const states = await this.#standstill(child);
    await workers.kill(child);
    tally.hit("kills", states);
  }

  async #stop(child: Child): Promise<void> {
    const { engine, tally, random, sessionLifetimeMs } = this.#parts;
    await engine.ask("paused", [child.name]);
    const states = await this.#standstill(child);
    tally.hit("stops", states);
    const isLong = random.chance(LONG_STOP_SHARE);
    if (isLong) tally.longStops += 1;
    const ms = isLong ? random.between(sessionLifetimeMs + 100, sessionLifetimeMs + 1_200) : random.between(20, 600);
    this.#resumptions.set(
      child,
      setTimeout(() => this.#resume(child), ms),
    );
  }

  /** Stops it first, so that the store shows what the process leaves behind. */
  async #standstill(child: Child): Promise<ReadonlySet<StateHit>> {
    const { store, workers, tally } = this.#parts;
    await child.stop();
    // A process stopped inside a lock locks out all others, including main; then its state is unknown.
    const records = await store.list().catch(() => null);
    if (records === null) return new Set();
    for (const fault of faultsOf(records, RECORDS_MAX)) tally.violated(fault);
    return statesOf(child.name, records, workers.lastHolderOf);
  }

  #resume(child: Child): void {
    this.#forget(child);
    child.resume();
    this.#parts.engine.tell("resumed", [child.name]);
  }

  #forget(child: Child): void {
    clearTimeout(this.#resumptions.get(child));
    this.#resumptions.delete(child);
  }

  #decision(): { kind: "go" | "drop"; afterMs: number } {
    const { random } = this.#parts;
    const afterMs = random.chance(LATE_SHARE) ? random.between(50, LATE_MAX_MS) : 0;
    return { kind: random.chance(LOST_SHARE) ? "drop" : "go", afterMs };
  }
}
