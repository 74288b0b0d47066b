/**
 * Serializes changes of one path of one thread: all runs of this process, in any framework, take turns, so that a read,
 * change and write is not interleaved with another. Across processes the file's version, checked by the sandbox itself,
 * decides.
 */

import type { SandboxSource } from "./source.ts";

export class PathTurns {
  readonly #turns: Turns;
  readonly #place: string;

  constructor(source: SandboxSource, { user = "", thread }: { readonly user?: string; readonly thread: string }) {
    this.#turns = turnsOf(source);
    this.#place = JSON.stringify([user, thread]);
  }

  run<T>(path: string, action: () => Promise<T>): Promise<T> {
    return this.#turns.run(this.#place + path, action);
  }
}

/** One after the other for each key; unused keys are dropped. */
class Turns {
  readonly #last = new Map<string, Promise<unknown>>();

  run<T>(key: string, action: () => Promise<T>): Promise<T> {
    const mine = (this.#last.get(key) ?? Promise.resolve()).then(action);
    const settled = mine
      .catch(() => undefined)
      .then(() => {
        if (this.#last.get(key) === settled) this.#last.delete(key);
      });
    this.#last.set(key, settled);
    return mine;
  }
}

const TURNS = new WeakMap<SandboxSource, Turns>();

function turnsOf(source: SandboxSource): Turns {
  const turns = TURNS.get(source) ?? new Turns();
  TURNS.set(source, turns);
  return turns;
}
