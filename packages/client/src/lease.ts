/**
 * A lease that a gateway gave: kept alive by renewing it, until it is released.
 *
 * Invariants
 * - It is renewed three times in its lifetime. One failed renewal is no reason to worry; a lease that the gateway no
 *   longer knows is lost, and says so once.
 * - A release ends this lease and no other, once, and never rejects: a lease that could not be released ends by not
 *   being renewed.
 * - `sandbox` is an object of one generation. When the gateway answers from a newer one, it is another object, and the
 *   old one answers `stale_generation`.
 */

import {
  type Generation,
  isSandlotError,
  type LeaseId,
  type LeaseReply,
  type LossReason,
  leaseRenewalSchema,
  type Recovery,
  type Sandbox,
  type SandboxId,
  SandlotError,
} from "@sandlot/contract";
import { RemoteSandbox } from "./remote/remote-sandbox.ts";
import { later, wallMs } from "./wire/clock.ts";
import type { Transport } from "./wire/transport.ts";

type Loss = { readonly reason: LossReason; readonly generation: Generation };

export interface LeaseParts {
  readonly transport: Transport;
  readonly thread: string;
  readonly purpose: string;
  readonly ttlMs: number;
  readonly reply: LeaseReply;
  /** What goes with the lease. */
  readonly onReleased?: (() => Promise<unknown>) | null;
}

export class ClientLease implements AsyncDisposable {
  readonly id: LeaseId;
  readonly purpose: string;
  readonly acquiredAt = wallMs();
  readonly recovery: Recovery;
  readonly #parts: LeaseParts;
  readonly #sandboxId: SandboxId;
  readonly #listeners = new Set<(loss: Loss) => void>();
  #generation: Generation;
  #sandbox: RemoteSandbox | null = null;
  #released: Promise<void> | null = null;
  #lost = false;
  #stopRenewing: () => void = () => undefined;

  constructor(parts: LeaseParts) {
    const { reply, purpose } = parts;
    this.#parts = parts;
    this.id = reply.leaseId as LeaseId;
    this.purpose = purpose;
    this.recovery = reply.recovery;
    this.#sandboxId = reply.sandboxId as SandboxId;
    this.#generation = reply.generation as Generation;
    this.#renewLater();
  }

  get generation(): Generation {
    return this.#generation;
  }

  get sandbox(): Sandbox {
    if (this.#sandbox?.generation !== this.#generation) this.#sandbox = this.#sandboxOf(this.#generation);
    return this.#sandbox;
  }

  release(): Promise<void> {
    this.#stopRenewing();
    this.#released ??= this.#release();
    return this.#released;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }

  /** Called when the lease or its sandbox was lost. Returns how to stop listening. */
  onLost(listener: (loss: Loss) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #sandboxOf(generation: Generation): RemoteSandbox {
    const { transport, thread } = this.#parts;
    return new RemoteSandbox(this.#sandboxId, generation, {
      transport: transport.noticing((seen) => this.#saw(seen as Generation)),
      thread,
      check: () => this.#check(generation),
    });
  }

  #check(generation: Generation): void {
    if (this.#released !== null) throw new SandlotError("lease_released", { leaseId: this.id });
    if (this.#lost) throw new SandlotError("lease_not_found", { leaseId: this.id });
    if (generation === this.#generation) return;
    throw new SandlotError("stale_generation", { sandboxId: this.#sandboxId, generation, current: this.#generation });
  }

  #saw(generation: Generation): void {
    if (generation <= this.#generation) return;
    const lost = this.#generation;
    this.#generation = generation;
    this.#tell({ reason: "crashed", generation: lost });
  }

  #renewLater(): void {
    this.#stopRenewing = later(this.#parts.ttlMs / 3, () => void this.#renew());
  }

  async #renew(): Promise<void> {
    const path = `/v1/leases/${encodeURIComponent(this.id)}`;
    try {
      await this.#parts.transport.json(leaseRenewalSchema, { method: "PUT", path, repeatable: true });
    } catch (error) {
      if (isSandlotError(error, "lease_not_found") && this.#released === null) {
        this.#lost = true;
        return this.#tell({ reason: "expired", generation: this.#generation });
      }
    }
    if (this.#released === null) this.#renewLater();
  }

  async #release(): Promise<void> {
    const path = `/v1/leases/${encodeURIComponent(this.id)}`;
    // A gateway that cannot be reached lets the lease expire.
    await this.#parts.transport.done({ method: "DELETE", path, repeatable: true }).catch(() => undefined);
    await this.#parts.onReleased?.().catch(() => undefined);
  }

  /** A listener that throws disturbs neither the lease nor the other listeners. */
  #tell(loss: Loss): void {
    for (const listener of this.#listeners) {
      try {
        listener(loss);
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}
