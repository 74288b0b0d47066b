/**
 * Virtual time: clocks and timers that move only when a test says so.
 *
 * Invariants
 * - Timers fire in the order of their deadlines; those with the same one in the order they were set.
 * - Between two timers all work that needs no time is done.
 */

import { createHash } from "node:crypto";
import type { Liveness, ProcessIdentity, Timer, World } from "../../src/world/world.ts";

interface Alarm {
  readonly at: number;
  readonly order: number;
  readonly world: VirtualWorld;
  readonly fire: () => void;
}

/** A moment in 2030, so that no test depends on the real date. */
const WALL_START_MS = 1_893_456_000_000;
/** A test that waits longer than this, in virtual time, waits for an event that will not come. */
const PATIENCE_MS = 3_600_000;

export class VirtualTime {
  readonly #alarms = new Set<Alarm>();
  readonly #liveness = new Map<number, Liveness>();
  #now = 5_000_000;
  #order = 0;
  #worlds = 0;

  get now(): number {
    return this.#now;
  }

  newWorld(): VirtualWorld {
    this.#worlds += 1;
    return new VirtualWorld(this, this.#worlds);
  }

  setLiveness({ pid }: ProcessIdentity, liveness: Liveness): void {
    this.#liveness.set(pid, liveness);
  }

  livenessOf({ pid }: ProcessIdentity): Liveness {
    return this.#liveness.get(pid) ?? "unknown";
  }

  /** How many timers of this process are set. */
  timersOf(world: VirtualWorld): number {
    return [...this.#alarms].filter((alarm) => alarm.world === world).length;
  }

  setAlarm(world: VirtualWorld, delayMs: number, fire: () => void): Timer {
    this.#order += 1;
    const alarm: Alarm = { at: this.#now + Math.max(0, delayMs), order: this.#order, world, fire };
    this.#alarms.add(alarm);
    return { cancel: () => this.#alarms.delete(alarm) };
  }

  /** Runs all work that needs no time. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 2; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  }

  /** Lets `ms` pass, with everything that is due. */
  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    while (await this.#fireNext(until));
    this.#now = until;
    await this.settle();
  }

  /** Lets time pass until `promise` is settled, and settles the same way. */
  async until<T>(promise: Promise<T>, patienceMs = PATIENCE_MS): Promise<T> {
    const outcome = watched(promise);
    const deadline = this.#now + patienceMs;
    await this.settle();
    while (outcome.state === "pending") {
      if (!(await this.#fireNext(deadline))) throw new Error(`It is still not settled after ${patienceMs} virtual ms.`);
    }
    return promise;
  }

  /** Lets time pass until `condition` holds. */
  async untilTrue(what: string, condition: () => boolean | Promise<boolean>, patienceMs = PATIENCE_MS): Promise<void> {
    const deadline = this.#now + patienceMs;
    await this.settle();
    while (!(await condition())) {
      if (!(await this.#fireNext(deadline))) throw new Error(`After ${patienceMs} virtual ms still not: ${what}.`);
    }
  }

  async #fireNext(until: number): Promise<boolean> {
    await this.settle();
    let next: Alarm | undefined;
    for (const alarm of this.#alarms) {
      if (alarm.world.isStopped() || alarm.at > until) continue;
      if (next === undefined || alarm.at < next.at || (alarm.at === next.at && alarm.order < next.order)) next = alarm;
    }
    if (next === undefined) return false;
    this.#alarms.delete(next);
    this.#now = Math.max(this.#now, next.at);
    next.fire();
    await this.settle();
    return true;
  }
}

/** One process' view of virtual time. */
export class VirtualWorld implements World {
  readonly identity: ProcessIdentity;
  readonly #time: VirtualTime;
  readonly #name: string;
  #wallStepMs = 0;
  #stopped = false;
  #draws = 0;

  constructor(time: VirtualTime, number: number) {
    this.#time = time;
    this.#name = `world-${number}`;
    this.identity = { bootId: "boot", pidNamespace: "pid:[1]", pid: number, startTime: `${number}00` };
  }

  wallMs(): number {
    return Math.floor(WALL_START_MS + this.#time.now + this.#wallStepMs);
  }

  monotonicMs(): number {
    return this.#time.now;
  }

  timer(delayMs: number, fire: () => void): Timer {
    return this.#time.setAlarm(this, delayMs, fire);
  }

  random(): number {
    return Number.parseInt(this.randomHex(4), 16) / 2 ** 32;
  }

  randomHex(bytes: number): string {
    this.#draws += 1;
    return createHash("sha256")
      .update(`${this.#name}-${this.#draws}`)
      .digest("hex")
      .slice(0, bytes * 2);
  }

  processLiveness(identity: ProcessIdentity): Liveness {
    return this.#time.livenessOf(identity);
  }

  /** A step of this machine's clock. */
  stepWallClock(ms: number): void {
    this.#wallStepMs += ms;
  }

  /** The process gets no processor: its timers wait. */
  stop(): void {
    this.#stopped = true;
  }

  goOn(): void {
    this.#stopped = false;
  }

  isStopped(): boolean {
    return this.#stopped;
  }
}

export interface Watched<T> {
  readonly promise: Promise<T>;
  state: "pending" | "fulfilled" | "rejected";
}

/** Knows a promise's state at any time. A rejection counts as handled. */
export function watched<T>(promise: Promise<T>): Watched<T> {
  const outcome: Watched<T> = { promise, state: "pending" };
  promise.then(
    () => {
      outcome.state = "fulfilled";
    },
    () => {
      outcome.state = "rejected";
    },
  );
  return outcome;
}
