/** The leases that requests of this gateway hold now, so that stopping can wait until all are given back. */

import type { Lease } from "../fleet.ts";

export class TrackedLeases {
  readonly #open = new Set<Lease>();
  #wakes: (() => void)[] = [];

  track(lease: Lease): Lease {
    this.#open.add(lease);
    return new TrackedLease(lease, this);
  }

  ended(lease: Lease): void {
    this.#open.delete(lease);
    if (this.#open.size === 0) for (const wake of this.#wakes.splice(0)) wake();
  }

  /** Resolves when none is held any more. */
  async none(): Promise<void> {
    if (this.#open.size > 0) await new Promise<void>((resolve) => this.#wakes.push(resolve));
  }
}

class TrackedLease implements Lease {
  readonly #lease: Lease;
  readonly #leases: TrackedLeases;

  constructor(lease: Lease, leases: TrackedLeases) {
    this.#lease = lease;
    this.#leases = leases;
  }

  get id() {
    return this.#lease.id;
  }

  get purpose() {
    return this.#lease.purpose;
  }

  get acquiredAt() {
    return this.#lease.acquiredAt;
  }

  get blueprint() {
    return this.#lease.blueprint;
  }

  get sandbox() {
    return this.#lease.sandbox;
  }

  get generation() {
    return this.#lease.generation;
  }

  get recovery() {
    return this.#lease.recovery;
  }

  connect(...input: Parameters<Lease["connect"]>) {
    return this.#lease.connect(...input);
  }

  onLost(listener: Parameters<Lease["onLost"]>[0]) {
    return this.#lease.onLost(listener);
  }

  async release(): Promise<void> {
    try {
      await this.#lease.release();
    } finally {
      this.#leases.ended(this.#lease);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}
