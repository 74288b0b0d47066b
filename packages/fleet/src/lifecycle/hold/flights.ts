/**
 * Flights: one opening of a thread's slot, however many callers wait for it.
 *
 * Each caller waits under its own signal and deadline. When the last one has given up, the flight is aborted; when it lands and
 * nobody took anything from it, what it brought is handed back. A caller takes its share synchronously, in the turn in
 * which it learns of the landing, so nothing can end the slot in between.
 */

import type { World } from "../../world/world.ts";
import type { Slot } from "./slot.ts";

/** How long a caller waits, and what it is told when that was not long enough. */
export interface Patience {
  readonly signal: AbortSignal | undefined;
  readonly leftMs: () => number;
  readonly late: () => unknown;
}

interface Flight {
  readonly promise: Promise<Slot>;
  readonly controller: AbortController;
  waiting: number;
  landed: Slot | null;
}

export class SharedOpens {
  readonly #flights = new Map<string, Flight>();
  readonly #airborne = new Set<Promise<Slot>>();
  readonly #world: World;
  readonly #unclaimed: (slot: Slot) => void;

  /** `unclaimed` is told of a slot that landed when nobody is waiting for it any more. */
  constructor(world: World, unclaimed: (slot: Slot) => void) {
    this.#world = world;
    this.#unclaimed = unclaimed;
  }

  /** Joins the flight for `key`, or starts it. `take` is called with what landed. */
  join<T>(
    key: string,
    patience: Patience,
    start: (signal: AbortSignal) => Promise<Slot>,
    take: (slot: Slot) => T,
  ): Promise<T> {
    const { signal, leftMs, late } = patience;
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    const flight = this.#flights.get(key) ?? this.#start(key, start);
    flight.waiting += 1;
    return new Promise<T>((resolve, reject) => {
      let left = false;
      const leave = (reason?: unknown) => {
        left = true;
        timer.cancel();
        signal?.removeEventListener("abort", onAbort);
        this.#leave(key, flight, reason);
      };
      const giveUp = (reason: unknown) => {
        if (left) return;
        reject(reason);
        leave(reason);
      };
      const onAbort = () => giveUp(signal?.reason);
      const timer = this.#world.timer(leftMs(), () => giveUp(late()));
      signal?.addEventListener("abort", onAbort, { once: true });
      flight.promise.then((slot) => {
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

  /** Aborts every flight. Resolves when all, also those given up before, have cleaned up after themselves. */
  async abort(reason: unknown): Promise<void> {
    for (const flight of this.#flights.values()) flight.controller.abort(reason);
    while (this.#airborne.size > 0) await Promise.allSettled(this.#airborne);
  }

  #start(key: string, start: (signal: AbortSignal) => Promise<Slot>): Flight {
    const controller = new AbortController();
    const flight: Flight = { controller, waiting: 0, landed: null, promise: start(controller.signal) };
    this.#flights.set(key, flight);
    this.#airborne.add(flight.promise);
    flight.promise.then(
      (slot) => {
        flight.landed = slot;
        this.#ground(key, flight);
        if (flight.waiting === 0) this.#unclaimed(slot);
      },
      () => this.#ground(key, flight),
    );
    return flight;
  }

  #leave(key: string, flight: Flight, reason: unknown): void {
    flight.waiting -= 1;
    if (flight.waiting > 0) return;
    if (flight.landed !== null) {
      this.#unclaimed(flight.landed);
      return;
    }
    flight.controller.abort(reason);
    // Nobody joins what is being given up; whoever comes next starts another.
    if (this.#flights.get(key) === flight) this.#flights.delete(key);
  }

  #ground(key: string, flight: Flight): void {
    this.#airborne.delete(flight.promise);
    if (this.#flights.get(key) === flight) this.#flights.delete(key);
  }
}
