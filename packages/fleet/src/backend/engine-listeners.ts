/**
 * The listeners to an engine's events, for the watcher of every backend.
 *
 * Invariants
 * - A function that is added twice gets every event twice; each addition is withdrawn by itself, once.
 * - The watch begins with the first listener and ends with the last.
 * - Adding or withdrawing a listener while an event is told changes nothing for the others.
 */

import type { EngineEvent } from "./backend.ts";

export type EngineListener = (event: EngineEvent) => void;

export interface Watch {
  begin(): void;
  /** Also called by `clear`, and then maybe without a beginning. */
  end(): void;
}

export class EngineListeners {
  readonly #watch: Watch;
  readonly #listeners = new Set<EngineListener>();

  /** Without a watch: for one that runs by itself. */
  constructor(watch: Watch = { begin: () => {}, end: () => {} }) {
    this.#watch = watch;
  }

  get size(): number {
    return this.#listeners.size;
  }

  add(listener: EngineListener): () => void {
    const own: EngineListener = (event) => listener(event);
    this.#listeners.add(own);
    if (this.#listeners.size === 1) this.#watch.begin();
    return () => {
      if (this.#listeners.delete(own) && this.#listeners.size === 0) this.#watch.end();
    };
  }

  tell(event: EngineEvent): void {
    for (const listener of [...this.#listeners]) listener(event);
  }

  /** Nothing is told any more. */
  clear(): void {
    this.#listeners.clear();
    this.#watch.end();
  }
}
