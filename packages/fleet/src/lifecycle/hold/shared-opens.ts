/**
 * Shared opens: one opening of a thread's slot, however many callers wait for it.
 *
 * Each caller waits under its own signal and deadline. The last caller that gives up aborts the opening. A slot that arrives
 * when no caller waits any more goes to `unclaimed`. A caller takes its share synchronously, in the turn in which it learns
 * of the slot, so nothing can end the slot in between.
 */

import { SandlotError } from "@sandlot/contract";
import type { World } from "../../world/world.ts";
import type { Slot } from "./slot.ts";

/** How long a caller waits, and the error that ends a wait which took too long. */
export interface Patience {
  readonly signal: AbortSignal | undefined;
  readonly leftMs: () => number;
  /** `stage` is the step that it waited for. */
  readonly late: (stage: string) => unknown;
}

/** One deadline for all the steps of a call. */
export function patienceOf(world: World, timeoutMs: number, signal: AbortSignal | undefined): Patience {
  const until = world.monotonicMs() + timeoutMs;
  return {
    signal,
    leftMs: () => Math.max(0, until - world.monotonicMs()),
    late: (stage) => new SandlotError("acquire_timeout", { stage, timeoutMs }),
  };
}

/** The step that an opening is at, for the timeout error of a waiting caller. */
export interface Progress {
  stage: string;
}

type Start = (signal: AbortSignal, progress: Progress) => Promise<Slot>;

interface SharedOpen {
  readonly promise: Promise<Slot>;
  readonly controller: AbortController;
  readonly progress: Progress;
  waiting: number;
  result: Slot | null;
}

export class SharedOpens {
  readonly #opens = new Map<string, SharedOpen>();
  readonly #pending = new Set<Promise<Slot>>();
  readonly #world: World;
  readonly #unclaimed: (slot: Slot) => void;

  /** `unclaimed` gets each slot that arrives when no caller waits for it any more. */
  constructor(world: World, unclaimed: (slot: Slot) => void) {
    this.#world = world;
    this.#unclaimed = unclaimed;
  }

  /** Joins the opening for `key`, or starts it. `take` gets its slot. */
  join<T>(key: string, patience: Patience, start: Start, take: (slot: Slot) => T): Promise<T> {
    const { signal, leftMs, late } = patience;
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    const open = this.#opens.get(key) ?? this.#start(key, start);
    open.waiting += 1;
    return new Promise<T>((resolve, reject) => {
      let left = false;
      const leave = (reason?: unknown) => {
        left = true;
        timer.cancel();
        signal?.removeEventListener("abort", onAbort);
        this.#leave(key, open, reason);
      };
      const giveUp = (reason: unknown) => {
        if (left) return;
        reject(reason);
        leave(reason);
      };
      const onAbort = () => giveUp(signal?.reason);
      const timer = this.#world.timer(leftMs(), () => giveUp(late(open.progress.stage)));
      signal?.addEventListener("abort", onAbort, { once: true });
      open.promise.then((slot) => {
        if (left) return;
        try {
          resolve(take(slot));
        } catch (error) {
          reject(error);
        }
        leave();
      }, giveUp);
    });
  }

  /** Aborts every opening. Resolves when all of them, also those given up before, have cleaned up. */
  async abort(reason: unknown): Promise<void> {
    for (const open of this.#opens.values()) open.controller.abort(reason);
    while (this.#pending.size > 0) await Promise.allSettled(this.#pending);
  }

  #start(key: string, start: Start): SharedOpen {
    const controller = new AbortController();
    const progress = { stage: "looking for the thread's sandbox" };
    const promise = start(controller.signal, progress);
    const open: SharedOpen = { controller, progress, promise, waiting: 0, result: null };
    this.#opens.set(key, open);
    this.#pending.add(open.promise);
    open.promise.then(
      (slot) => {
        open.result = slot;
        this.#settle(key, open);
        if (open.waiting === 0) this.#unclaimed(slot);
      },
      () => this.#settle(key, open),
    );
    return open;
  }

  #leave(key: string, open: SharedOpen, reason: unknown): void {
    open.waiting -= 1;
    if (open.waiting > 0) return;
    if (open.result !== null) {
      this.#unclaimed(open.result);
      return;
    }
    open.controller.abort(reason);
    // A later caller starts another opening instead of joining an aborted one.
    if (this.#opens.get(key) === open) this.#opens.delete(key);
  }

  #settle(key: string, open: SharedOpen): void {
    this.#pending.delete(open.promise);
    if (this.#opens.get(key) === open) this.#opens.delete(key);
  }
}
