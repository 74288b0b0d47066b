/**
 * Waits for changes of the store. Hints wake waiters early; because a hint may never come, every waiter also looks
 * again after a while. The store is watched only while a waiter listens: an idle fleet costs nothing.
 */

import { sleep } from "../world/waiting.ts";
import type { Timer, World } from "../world/world.ts";
import type { Store } from "./store.ts";

/** Without a hint, look again this often: short enough for a person, long enough to cost nothing. */
const POLL_MS = 250;
/**
 * Over a network a look is up to two round trips: one that asks for room, and one for sandboxes to evict. With the jitter
 * a waiter makes at most one round trip in a second.
 */
const SHARED_POLL_MS = 2_667;
/** After a hint, related changes may arrive before the waiters look. */
const SETTLE_MS = 2;
/** However much changes, each waiter looks at least this often. */
const PAUSE_MAX_MS = 64;
const SHARED_PAUSE_MAX_MS = 1_000;

export class Changes {
  readonly #world: World;
  readonly #store: Store;
  readonly #waiters = new Set<() => void>();
  #listeners = 0;
  #unwatch: (() => void) | null = null;
  #settling: Timer | null = null;
  #count = 0;

  constructor(world: World, store: Store) {
    this.#world = world;
    this.#store = store;
  }

  /** Runs `work` while the store is watched. */
  async listening<T>(work: () => Promise<T>): Promise<T> {
    this.#listeners += 1;
    this.#unwatch ??= this.#store.watch(() => this.hint());
    try {
      return await work();
    } finally {
      this.#listeners -= 1;
      if (this.#listeners === 0) this.close();
    }
  }

  /** Take it before looking; `after` then misses no change that happens during the look. */
  count(): number {
    return this.#count;
  }

  /**
   * Resolves when something may have changed since `count`. Rejects with the signal's reason. A busy fleet changes all
   * the time: the more `rounds` a caller has waited in vain, the less often a change wakes it.
   */
  async after(count: number, signal: AbortSignal, rounds = 0): Promise<void> {
    signal.throwIfAborted();
    const { isShared } = this.#store;
    const pauseMs = Math.min(SETTLE_MS * 2 ** rounds, isShared ? SHARED_PAUSE_MAX_MS : PAUSE_MAX_MS);
    if (rounds > 0) await sleep(this.#world, pauseMs, signal);
    if (count !== this.#count) return rounds > 0 ? undefined : this.#wait(pauseMs, signal);
    return this.#wait((isShared ? SHARED_POLL_MS : POLL_MS) * (0.75 + this.#world.random() / 2), signal);
  }

  /** Something may have changed. */
  hint(): void {
    this.#count += 1;
    if (this.#waiters.size === 0 || this.#settling !== null) return;
    this.#settling = this.#world.timer(SETTLE_MS, () => {
      this.#settling = null;
      for (const wake of [...this.#waiters]) wake();
    });
  }

  close(): void {
    this.#unwatch?.();
    this.#unwatch = null;
  }

  /** No waiter is left to wake. */
  #forgetHint(): void {
    this.#settling?.cancel();
    this.#settling = null;
  }

  #wait(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = () => {
        timer.cancel();
        this.#waiters.delete(wake);
        signal.removeEventListener("abort", onAbort);
        if (this.#waiters.size === 0) this.#forgetHint();
      };
      const wake = () => {
        end();
        resolve();
      };
      const onAbort = () => {
        end();
        reject(signal.reason);
      };
      const timer = this.#world.timer(ms, wake);
      this.#waiters.add(wake);
      signal.addEventListener("abort", onAbort, { once: true });
    });
  }
}
