/** What main waits for: a note of a child, its end, or a trapped call. */

import type { Method, Note } from "../wire.ts";
import type { Child } from "./child-process.ts";

export type Signal =
  | { readonly what: Note["note"] | "gone"; readonly child: Child }
  | { readonly what: "held"; readonly held: number; readonly name: string; readonly method: Method };

export class Signals {
  readonly #listeners = new Set<(signal: Signal) => void>();

  emit(signal: Signal): void {
    for (const listener of [...this.#listeners]) listener(signal);
  }

  /** Returns a function that ends it. */
  listen(listener: (signal: Signal) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The first signal that `pick` accepts, or `null` after the timeout. Listens from the moment of the call. */
  next<T>(ms: number, pick: (signal: Signal) => T | null): Promise<T | null> {
    return new Promise((resolve) => {
      const end = (value: T | null) => {
        clearTimeout(timer);
        this.#listeners.delete(listener);
        resolve(value);
      };
      const listener = (signal: Signal) => {
        const picked = pick(signal);
        if (picked !== null) end(picked);
      };
      const timer = setTimeout(() => end(null), ms);
      this.#listeners.add(listener);
    });
  }
}
