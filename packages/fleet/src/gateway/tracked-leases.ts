/** The leases that requests of this gateway hold now, so that stopping can wait until all are given back. */

import type { Lease } from "../fleet.ts";

export class TrackedLeases {
  readonly #open = new Set<Lease>();
  #wakes: (() => void)[] = [];

  track(lease: Lease): Lease {
    this.#open.add(lease);
    const release = async () => {
      try {
        await lease.release();
      } finally {
        this.#open.delete(lease);
        if (this.#open.size === 0) for (const wake of this.#wakes.splice(0)) wake();
      }
    };
    return {
      id: lease.id,
      purpose: lease.purpose,
      acquiredAt: lease.acquiredAt,
      get sandbox() {
        return lease.sandbox;
      },
      get generation() {
        return lease.generation;
      },
      get recovery() {
        return lease.recovery;
      },
      connect: (...args) => lease.connect(...args),
      onLost: (listener) => lease.onLost(listener),
      release,
      [Symbol.asyncDispose]: release,
    };
  }

  /** Resolves when none is held any more. */
  async none(): Promise<void> {
    if (this.#open.size > 0) await new Promise<void>((resolve) => this.#wakes.push(resolve));
  }
}
