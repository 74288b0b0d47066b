/**
 * A machine and its clocks. The wall clock is slightly wrong and can be stepped. The monotonic clock runs slightly too
 * fast or too slow, and stands while the machine sleeps. A frozen machine (a stopped virtual one) sleeps with both
 * clocks standing, and cannot detect it afterwards.
 */

import type { Scheduler } from "../schedule/scheduler.ts";

/** Wall-clock time at the beginning of every run. */
export const EPOCH_MS = 1_800_000_000_000;
/** The largest error of a monotonic clock, as a share. */
const DRIFT_MAX = 200e-6;
/** Rounding error of sums of fractional milliseconds. */
const ROUNDING_MS = 1e-6;
/** The tolerance of a check that compares the clocks of two hosts, or a clock and the truth. */
export const DRIFT_MARGIN = 3 * DRIFT_MAX;

export class Host {
  readonly name: string;
  readonly #scheduler: Scheduler;
  readonly #rate: number;
  readonly #bootedMs: number;
  /** Spans in which it stood; the last one may still be open. */
  readonly #sleeps: { readonly from: number; to: number | null; readonly frozen: boolean }[] = [];
  /** The difference between its wall clock and the truth. */
  clockErrorMs: number;
  /**
   * When its wall clock was last stepped. A sleep counts too: the wall clock went on while the monotonic clock stood.
   */
  steppedAt = -1;

  constructor(parts: { name: string; scheduler: Scheduler; clockErrorMs?: number; drift?: number; bootedMs?: number }) {
    this.name = parts.name;
    this.#scheduler = parts.scheduler;
    this.clockErrorMs = parts.clockErrorMs ?? 0;
    this.#rate = 1 + (parts.drift ?? 0) * DRIFT_MAX;
    this.#bootedMs = parts.bootedMs ?? 0;
  }

  get identity(): { readonly bootId: string } {
    return { bootId: `boot-${this.name}` };
  }

  get isAsleep(): boolean {
    return this.#sleeps.at(-1)?.to === null;
  }

  wallMs(): number {
    return EPOCH_MS + this.#scheduler.now + this.clockErrorMs;
  }

  monotonicMs(): number {
    return this.#bootedMs + this.awakeMs(0) * this.#rate;
  }

  /** How long it was awake from then to now, or to `until`. */
  awakeMs(since: number, until = this.#scheduler.now): number {
    if (until < since) return -this.awakeMs(until, since);
    let awakeMs = until - since;
    for (const { from, to } of this.#sleeps)
      awakeMs -= Math.max(0, Math.min(to ?? until, until) - Math.max(from, since));
    return awakeMs;
  }

  /** The last moment since which it has been awake for this long: sleep moves that moment further back. */
  awakeSince(awakeMs: number): number {
    let at = this.#scheduler.now;
    let leftMs = awakeMs;
    for (const { from, to } of this.#sleeps.toReversed()) {
      const awakeAfterMs = at - (to ?? at);
      if (leftMs <= awakeAfterMs + ROUNDING_MS) break;
      leftMs -= awakeAfterMs;
      at = from;
    }
    return at - leftMs;
  }

  /** How long ago its monotonic clock showed this, in true time without sleep. */
  agoMs(monotonicMs: number): number {
    return (this.monotonicMs() - monotonicMs) / this.#rate;
  }

  /** In true milliseconds, if it does not fall asleep meanwhile. */
  trueMs(delayMs: number): number {
    return delayMs / this.#rate;
  }

  /** Between its wall clock and its monotonic one, without drift: the jump that an instance can notice. */
  get skewMs(): number {
    let sleptMs = 0;
    // While it is frozen, both stand; afterwards the wall clock lags by that time.
    for (const { from, to, frozen } of this.#sleeps)
      if (to !== null || !frozen) sleptMs += (to ?? this.#scheduler.now) - from;
    return this.clockErrorMs + sleptMs;
  }

  step(byMs: number): void {
    this.clockErrorMs += byMs;
    this.steppedAt = this.#scheduler.now;
  }

  sleep(frozen: boolean): void {
    if (!this.isAsleep) this.#sleeps.push({ from: this.#scheduler.now, to: null, frozen });
  }

  wake(): void {
    const sleep = this.#sleeps.at(-1);
    if (sleep === undefined || sleep.to !== null) return;
    sleep.to = this.#scheduler.now;
    if (sleep.frozen) this.clockErrorMs -= sleep.to - sleep.from;
    else this.steppedAt = this.#scheduler.now;
  }
}
