/**
 * The world of one instance: the simulation's time, chance from the seed, and a machine with other processes on it.
 *
 * Clocks are the host's. They run on while a process is paused; a timer is one of the host's monotonic clock, so it
 * waits while the host sleeps.
 */

import type { Liveness, ProcessIdentity, Timer, World } from "../../../packages/fleet/src/world/world.ts";
import type { Random } from "../schedule/random.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import type { Host } from "./host.ts";
import type { Process } from "./process.ts";

/** Rounding error of sums of fractional milliseconds. */
const ROUNDING_MS = 1e-3;

export class SimWorld implements World {
  readonly identity: ProcessIdentity;
  readonly #process: Process;
  readonly #host: Host;
  readonly #scheduler: Scheduler;
  readonly #random: Random;
  readonly #timers = new Set<{ readonly delayMs: number }>();
  readonly #lookUp: (identity: ProcessIdentity) => Liveness;

  constructor(parts: {
    process: Process;
    host: Host;
    scheduler: Scheduler;
    random: Random;
    lookUp: (identity: ProcessIdentity) => Liveness;
  }) {
    this.identity = parts.process.identity;
    this.#process = parts.process;
    this.#host = parts.host;
    this.#scheduler = parts.scheduler;
    this.#random = parts.random;
    this.#lookUp = parts.lookUp;
  }

  wallMs(): number {
    return this.#host.wallMs();
  }

  monotonicMs(): number {
    return this.#host.monotonicMs();
  }

  /** Timers that were set and have neither fired nor been cancelled. */
  get timers(): number {
    return this.#timers.size;
  }

  /** Who set the oldest of them. */
  get oldestTimer(): string {
    const [first] = this.#timers;
    return first === undefined ? "" : `${first.delayMs} ms`;
  }

  timer(delayMs: number, fire: () => void): Timer {
    const timer = { delayMs };
    this.#timers.add(timer);
    const due = this.#host.monotonicMs() + Math.max(0, delayMs);
    let cancelled = false;
    let scheduled = this.#scheduler.after(this.#host.trueMs(delayMs), () => arrive());
    const arrive = () => {
      const leftMs = due - this.#host.monotonicMs();
      // It has slept meanwhile.
      if (leftMs > ROUNDING_MS) scheduled = this.#scheduler.after(Math.max(1, this.#host.trueMs(leftMs)), arrive);
      else {
        this.#process.deliver(() => {
          if (cancelled) return;
          this.#timers.delete(timer);
          fire();
        });
      }
    };
    return {
      cancel: () => {
        cancelled = true;
        this.#timers.delete(timer);
        scheduled.cancel();
      },
    };
  }

  random(): number {
    return this.#random.unit();
  }

  randomHex(bytes: number): string {
    return this.#random.hex(bytes);
  }

  processLiveness(identity: ProcessIdentity): Liveness {
    return this.#lookUp(identity);
  }
}
