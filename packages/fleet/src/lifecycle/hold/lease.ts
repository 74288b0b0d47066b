/**
 * A lease: one caller's right to use a sandbox.
 *
 * Invariants
 * - A release ends this lease and no other, once, whatever state the sandbox or the store is in.
 * - A lease belongs to one slot at a time. When that slot is lost and the fleet restarts, the lease moves to the slot
 *   of the next generation, and `generation` and `recovery` say so.
 * - `sandbox` is an object of one generation. After a restart it is another object, and the old one is stale.
 */

import type { Duplex } from "node:stream";
import { inspect } from "node:util";
import type { Generation, LeaseId, LossReason, Recovery, Sandbox } from "@sandlot/contract";
import type { Lease } from "../../fleet.ts";
import { LeasedSandbox } from "./leased-sandbox.ts";
import type { Slot } from "./slot.ts";

type Loss = { readonly reason: LossReason; readonly generation: Generation };

/** What a lease asks of the provider. */
export interface LeaseHome {
  release(lease: LeaseHandle): Promise<void>;
  /** The slot of the next generation, or a rejection that says why there is none. */
  restart(lease: LeaseHandle): Promise<Slot>;
  /** A use failed in a way that may mean the sandbox is gone. */
  suspect(slot: Slot, error: unknown): void;
  monotonicMs(): number;
}

const NOTHING_LEFT: Recovery = {
  kind: "empty",
  lost: ["processes", "temporary files", "installed packages", "workspace"],
  survived: [],
};

export class LeaseHandle implements Lease {
  readonly id: LeaseId;
  readonly purpose: string;
  readonly acquiredAt: number;
  /** Where the acquire came from; only when stacks are captured. */
  readonly stack: { readonly stack?: string } | null;
  /** Set for a lease that is a row in the store. */
  readonly ttlMs: number | null;
  readonly home: LeaseHome;
  /** Since when it is held, on the monotonic clock. */
  readonly since: number;
  /** On the monotonic clock. */
  lastUsedAt: number;
  leakReported = false;
  /** Its row is in the store. */
  granted = false;
  /** Its row is being written. */
  granting = false;
  #slot: Slot;
  #recovery: Recovery;
  #sandbox: LeasedSandbox | null = null;
  #released: Promise<void> | null = null;
  #usesUnderWay = 0;
  #listeners: Set<(loss: Loss) => void> | null = null;

  constructor(parts: {
    id: LeaseId;
    purpose: string;
    acquiredAt: number;
    since: number;
    lastUsedAt: number;
    stack: { readonly stack?: string } | null;
    ttlMs: number | null;
    slot: Slot;
    recovery: Recovery;
    home: LeaseHome;
  }) {
    this.id = parts.id;
    this.purpose = parts.purpose;
    this.acquiredAt = parts.acquiredAt;
    this.since = parts.since;
    this.lastUsedAt = parts.lastUsedAt;
    this.stack = parts.stack;
    this.ttlMs = parts.ttlMs;
    this.home = parts.home;
    this.#slot = parts.slot;
    this.#recovery = parts.recovery;
  }

  /** What `console.log` shows: whose right to what, and nothing of how it is kept. */
  [inspect.custom](): string {
    const { id, purpose, recovery, slot } = this;
    const whose = `user: '${slot.user}', thread: '${slot.thread}'`;
    return `Lease { id: '${id}', purpose: ${JSON.stringify(purpose)}, ${whose}, sandbox: '${slot.sandboxId}', recovery: '${recovery.kind}' }`;
  }

  get sandbox(): Sandbox {
    return this.#leased;
  }

  connect(port: number, options: { readonly signal?: AbortSignal } = {}): Promise<Duplex> {
    return this.#leased.connect(port, options.signal);
  }

  get #leased(): LeasedSandbox {
    if (this.#sandbox === null || this.#sandbox.slot !== this.#slot)
      this.#sandbox = new LeasedSandbox(this, this.#slot);
    return this.#sandbox;
  }

  get slot(): Slot {
    return this.#slot;
  }

  get blueprint(): string {
    return this.#slot.record.blueprint;
  }

  get generation(): Generation {
    return this.#slot.generation;
  }

  get recovery(): Recovery {
    return this.#recovery;
  }

  isReleased(): boolean {
    return this.#released !== null;
  }

  /** In use now, or how long not, in milliseconds. */
  unusedMs(now: number): number {
    return this.#usesUnderWay > 0 ? 0 : now - this.lastUsedAt;
  }

  release(): Promise<void> {
    this.#released ??= this.home.release(this);
    return this.#released;
  }

  /** It ended by itself: its time ran out without a renewal. */
  expire(): void {
    this.#released ??= Promise.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }

  onLost(listener: (loss: Loss) => void): () => void {
    this.#listeners ??= new Set();
    this.#listeners.add(listener);
    return () => this.#listeners?.delete(listener);
  }

  /** Called by the slot. A listener that throws disturbs neither the fleet nor the other listeners. */
  wasLost(reason: LossReason, generation: Generation): void {
    for (const listener of this.#listeners ?? []) {
      try {
        listener({ reason, generation });
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }

  moveTo(slot: Slot): void {
    this.#slot.leases.delete(this);
    this.#slot = slot;
    // This lease had a workspace before: where the next generation begins with none, it was lost too.
    this.#recovery = slot.recovery.kind === "empty" ? NOTHING_LEFT : slot.recovery;
    slot.leases.add(this);
  }

  async used<T>(use: () => Promise<T>): Promise<T> {
    this.#usesUnderWay += 1;
    try {
      return await use();
    } finally {
      this.#usesUnderWay -= 1;
      this.lastUsedAt = this.home.monotonicMs();
      this.leakReported = false;
    }
  }
}
