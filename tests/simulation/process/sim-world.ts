/**
 * The world of one instance: the simulation's time, chance from the seed, and a machine with other processes on it.
 *
 * The monotonic clock runs on while the process is paused, as CLOCK_BOOTTIME does; the wall clock belongs to the host
 * and can be stepped.
 */

import type { Liveness, ProcessIdentity, Timer, World } from "../../../packages/fleet/src/world/world.ts";
import type { Random } from "../schedule/random.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import type { Process } from "./process.ts";

/** Wall-clock time at the beginning of every run. */
export const EPOCH_MS = 1_800_000_000_000;

export interface Host {
  readonly name: string;
  /** How far its wall clock is from the truth. */
  clockErrorMs: number;
  /** When it was last stepped. */
  steppedAt: number;
}

export class SimWorld implements World {
  readonly identity: ProcessIdentity;
  readonly #process: Process;
  readonly #host: Host;
  readonly #scheduler: Scheduler;
  readonly #random: Random;
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
    return EPOCH_MS + this.#scheduler.now + this.#host.clockErrorMs;
  }

  monotonicMs(): number {
    return this.#scheduler.now;
  }

  timer(delayMs: number, fire: () => void): Timer {
    let cancelled = false;
    const scheduled = this.#scheduler.after(delayMs, () => {
      this.#process.deliver(() => {
        if (!cancelled) fire();
      });
    });
    return {
      cancel: () => {
        cancelled = true;
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
