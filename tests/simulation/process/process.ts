/**
 * A process as the operating system treats it. Nothing reaches a paused process, but its requests still take effect.
 * Nothing reaches a killed process ever again.
 *
 * Invariants
 * - Code of an instance runs only inside `deliver`, so a dead or paused instance never runs.
 * - A call it has issued takes effect whether or not it lives to get the response.
 */

import type { ProcessIdentity } from "../../../packages/fleet/src/world/world.ts";
import type { Scheduler } from "../schedule/scheduler.ts";

export type DeathKind = "kill-before-effect" | "kill-after-effect" | "kill-in-flight";

/** The ambush at one of the next calls out of the process. */
export interface Ambush {
  /** Calls left until it happens. */
  calls: number;
  readonly act: DeathKind | { readonly pauseMs: number };
}

export class Process {
  readonly name: string;
  readonly identity: ProcessIdentity;
  readonly #scheduler: Scheduler;
  /** When it was killed or ended; set once. */
  diedAt: number | null = null;
  #pausedAt: number | null = null;
  #pausedMs = 0;
  /** When it last went on after a pause. */
  resumedAt = Number.NEGATIVE_INFINITY;
  ambush: Ambush | null = null;
  #waiting: (() => void)[] = [];

  constructor(name: string, identity: ProcessIdentity, scheduler: Scheduler) {
    this.name = name;
    this.identity = identity;
    this.#scheduler = scheduler;
  }

  get alive(): boolean {
    return this.diedAt === null;
  }

  get paused(): boolean {
    return this.#pausedAt !== null;
  }

  /** Its total pause: time in which it owes nothing. */
  get pausedMs(): number {
    return this.#pausedMs + (this.#pausedAt === null ? 0 : this.#scheduler.now - this.#pausedAt);
  }

  get running(): boolean {
    return this.alive && !this.paused;
  }

  /** Runs `arrive` in the process: now, when it is resumed, or never. */
  deliver(arrive: () => void): void {
    if (!this.alive) return;
    if (this.paused) this.#waiting.push(arrive);
    else arrive();
  }

  kill(): void {
    this.diedAt = this.#scheduler.now;
    this.#waiting = [];
  }

  pause(): void {
    this.#pausedAt ??= this.#scheduler.now;
  }

  /** Everything that arrived meanwhile is delivered in order, each in its own turn. */
  resume(): void {
    if (this.#pausedAt === null) return;
    this.#pausedMs += this.#scheduler.now - this.#pausedAt;
    this.resumedAt = this.#scheduler.now;
    this.#pausedAt = null;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const arrive of waiting) this.#scheduler.after(0, () => this.deliver(arrive));
  }
}
