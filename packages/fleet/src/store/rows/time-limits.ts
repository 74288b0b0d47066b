/**
 * Many time limits of one length, with one timer for all of them. A store has several for each step, and most end unused:
 * a timer, a signal and its listeners for each would cost more than the step.
 *
 * Invariants
 * - Work ends for its caller when its limit has passed, or the limit around it has ended: work that ignores its signal
 *   cannot block its caller.
 * - There is no timer while no work is under way.
 */

import type { Timer, World } from "../../world/world.ts";

export class TimeLimit {
  /** On the monotonic clock. */
  readonly at: number;
  readonly #onEnd = new Set<(reason: unknown) => void>();
  #controller: AbortController | null = null;
  #ended: { readonly reason: unknown } | null = null;

  constructor(at: number) {
    this.at = at;
  }

  /** Made on first use. */
  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#ended !== null) this.#controller.abort(this.#ended.reason);
    }
    return this.#controller.signal;
  }

  throwIfEnded(): void {
    if (this.#ended !== null) throw this.#ended.reason;
  }

  onEnd(listener: (reason: unknown) => void): void {
    if (this.#ended === null) this.#onEnd.add(listener);
    else listener(this.#ended.reason);
  }

  offEnd(listener: (reason: unknown) => void): void {
    this.#onEnd.delete(listener);
  }

  end(reason: unknown): void {
    if (this.#ended !== null) return;
    this.#ended = { reason };
    this.#controller?.abort(reason);
    for (const listener of this.#onEnd) listener(reason);
    this.#onEnd.clear();
  }
}

interface UnderWay {
  readonly limit: TimeLimit;
  readonly late: () => unknown;
}

export class TimeLimits {
  readonly #world: World;
  readonly #ms: number;
  /** In the order of their ends: all are of one length. */
  readonly #underWay = new Set<UnderWay>();
  #timer: Timer | null = null;

  constructor(world: World, ms: number) {
    this.#world = world;
    this.#ms = ms;
  }

  /** Rejects with `late()` when the time is over, and with the reason of `outer` when that ends first. */
  within<T>(outer: TimeLimit | null, late: () => unknown, work: (limit: TimeLimit) => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      outer?.throwIfEnded();
      const limit = new TimeLimit(this.#world.monotonicMs() + this.#ms);
      const entry = { limit, late };
      const onOuter = (reason: unknown) => limit.end(reason);
      const leave = () => {
        outer?.offEnd(onOuter);
        this.#remove(entry);
      };
      outer?.onEnd(onOuter);
      limit.onEnd((reason) => {
        leave();
        reject(reason);
      });
      this.#add(entry);
      // Always followed: otherwise it could become an unhandled rejection.
      work(limit).then(
        (value) => {
          leave();
          resolve(value);
        },
        (error: unknown) => {
          leave();
          reject(error);
        },
      );
    });
  }

  /** Ends everything that is under way. */
  endAll(reason: unknown): void {
    for (const { limit } of [...this.#underWay]) limit.end(reason);
  }

  #add(entry: UnderWay): void {
    this.#underWay.add(entry);
    this.#timer ??= this.#world.timer(this.#ms, () => this.#fire());
  }

  #remove(entry: UnderWay): void {
    this.#underWay.delete(entry);
    if (this.#underWay.size > 0) return;
    this.#timer?.cancel();
    this.#timer = null;
  }

  #fire(): void {
    this.#timer = null;
    const now = this.#world.monotonicMs();
    for (const { limit, late } of [...this.#underWay]) {
      if (limit.at > now) {
        this.#timer = this.#world.timer(limit.at - now, () => this.#fire());
        return;
      }
      limit.end(late());
    }
  }
}
