/**
 * Threads whose home was lost with the last writes of the store (`store/rewind-exceptions.ts`).
 *
 *   lost ──▶ settled on the former engine: nothing is left behind
 *     └────▶ settled on another one: what was acknowledged so far stays on the former engine
 *
 * Invariant: the exception ends. From the moment a thread settles on another engine, everything that is acknowledged
 * there is promised again. Only what holders on the former engine still write is left behind too, until the engines of
 * that thread have recovered.
 */

interface LostHome {
  readonly former: string;
  /** It has settled on another engine. */
  hasMoved: boolean;
}

export class LostHomes {
  readonly #homes = new Map<string, LostHome>();

  lost(owner: string, former: string): void {
    this.#homes.set(owner, { former, hasMoved: false });
  }

  /** Returns whether what was acknowledged so far is left behind on the former engine. */
  settled(owner: string, engine: string): boolean {
    const home = this.#homes.get(owner);
    if (home === undefined || home.hasMoved) return false;
    if (engine === home.former) this.#homes.delete(owner);
    else home.hasMoved = true;
    return engine !== home.former;
  }

  /** The former engine of a thread that has not settled since; `null`: there is none. */
  unsettled(owner: string): string | null {
    const home = this.#homes.get(owner);
    return home === undefined || home.hasMoved ? null : home.former;
  }

  /** Whether this engine is the one that the thread has left. */
  wasLeft(owner: string, engine: string): boolean {
    const home = this.#homes.get(owner);
    return home?.hasMoved === true && home.former === engine;
  }

  hasMoved(owner: string): boolean {
    return this.#homes.get(owner)?.hasMoved === true;
  }
}
