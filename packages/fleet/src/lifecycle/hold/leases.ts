/**
 * The leases of this instance: grants them, counts them, and reports unused ones.
 *
 * A lease is counted in its slot. One with a `ttlMs` is also a row in the store (rule 8): it counts as a holder there
 * until it is released, or until no instance has renewed it for that long.
 */

import { type AcquirePath, type InstanceId, type LeaseId, type LossReason, SandlotError } from "@sandlot/contract";
import type { Settings } from "../../config/settings.ts";
import type { Lease } from "../../fleet.ts";
import { aboutRecord } from "../../observe/about.ts";
import { type EventBus, problemOf } from "../../observe/event-bus.ts";
import type { Store } from "../../store/store.ts";
import type { World } from "../../world/world.ts";
import { type LeaseController, LeaseHandle, type TakeCheckpoint } from "./lease.ts";
import { SAME } from "./recoveries.ts";
import { type Slot, sandboxLost } from "./slot.ts";

export interface LeasesParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly bus: EventBus;
  /** This instance's session. */
  readonly membership: { readonly instance: InstanceId; validate(): Promise<void> };
  readonly checkpoint: TakeCheckpoint;
  /** A row was written. */
  readonly onGranted: () => void;
}

/** The parameters of a lease, and when the caller asked for it. */
export interface LeaseParams {
  readonly purpose: string | undefined;
  /** Set for a remote lease. */
  readonly ttlMs: number | null;
  readonly startedAt: number;
  readonly stack: LeaseHandle["stack"];
}

export class Leases {
  readonly #parts: LeasesParts;
  readonly #leases = new Set<LeaseHandle>();
  #count = 0;

  constructor(parts: LeasesParts) {
    this.#parts = parts;
  }

  get size(): number {
    return this.#leases.size;
  }

  all(): Iterable<LeaseHandle> {
    return this.#leases;
  }

  /** Call this before the first `await` of `acquire`: afterwards its caller is no longer on the stack. */
  params(purpose: string | undefined, ttlMs: number | null, acquire: (...input: never[]) => unknown): LeaseParams {
    const { world, settings } = this.#parts;
    const stack = settings.leakDetection.captureStacks ? captureStack(acquire) : null;
    return { purpose, ttlMs, startedAt: world.monotonicMs(), stack };
  }

  /** Begins a lease on an open slot. A lease with a `ttlMs` must also be `granted` before it is handed out. */
  begin(
    slot: Slot,
    { purpose, ttlMs, startedAt, stack }: LeaseParams,
    controller: LeaseController,
    path: AcquirePath,
  ): LeaseHandle {
    const { world, bus } = this.#parts;
    const now = world.monotonicMs();
    const lease = new LeaseHandle({
      id: this.#newId(ttlMs !== null),
      purpose: purpose ?? "unnamed",
      acquiredAt: world.wallMs(),
      since: now,
      stack,
      ttlMs,
      slot,
      // A caller that joins a held slot finds the state unchanged.
      recovery: path === "held" ? SAME : slot.recovery,
      controller,
      checkpoint: this.#parts.checkpoint,
      clock: world,
    });
    slot.leases.add(lease);
    slot.used = true;
    this.#leases.add(lease);
    if (bus.listensTo("lease-acquired")) {
      bus.emit({
        type: "lease-acquired",
        path,
        durationMs: now - startedAt,
        leaseId: lease.id,
        purpose: lease.purpose,
        ...aboutRecord(slot),
      });
    }
    return lease;
  }

  /** Moves a lease to the slot of the next generation. */
  move(lease: LeaseHandle, next: Slot): Slot {
    if (lease.isReleased()) throw new SandlotError("lease_released", { leaseId: lease.id });
    lease.moveTo(next);
    next.used = true;
    return next;
  }

  /** Writes the row of a remote lease. Gives the lease back when that fails or its caller has gone. */
  async granted(lease: LeaseHandle, signal: AbortSignal): Promise<Lease> {
    try {
      await this.grant(lease);
      // Writing the row may take so long that our session, and the slot, are lost.
      await this.#parts.membership.validate();
      if (lease.slot.isLost()) throw sandboxLost(lease.slot, "session-lost");
      signal.throwIfAborted();
      return lease;
    } catch (error) {
      await lease.release();
      throw error;
    }
  }

  /** Writes the row of a lease that has one. */
  async grant(lease: LeaseHandle): Promise<void> {
    const { ttlMs, slot, purpose } = lease;
    if (ttlMs === null) return;
    const { sandboxId, generation } = slot;
    const request = {
      leaseId: lease.id,
      sandboxId,
      generation,
      purpose,
      holder: this.#parts.membership.instance,
      ttlMs,
    };
    try {
      if (await lease.grant(() => this.#parts.store.grantLease(request))) return this.#parts.onGranted();
    } finally {
      // Released meanwhile, it found no row to remove. Nobody renews this one, so it would hold the sandbox for `ttlMs`.
      if (lease.isReleased()) await this.#removeRow(lease);
    }
    throw new SandlotError("sandbox_lost", { sandboxId, generation, reason: "superseded" });
  }

  /** Ends a released lease. `null`: the store has no row to remove. */
  ended(lease: LeaseHandle): Promise<void> | null {
    const { bus, world } = this.#parts;
    this.#leases.delete(lease);
    if (bus.listensTo("lease-released")) {
      const heldMs = world.monotonicMs() - lease.since;
      bus.emit({
        type: "lease-released",
        heldMs,
        leaseId: lease.id,
        purpose: lease.purpose,
        ...aboutRecord(lease.slot),
      });
    }
    return lease.ttlMs === null ? null : this.#removeRow(lease);
  }

  /** Never rejects: a row that cannot be removed now expires without renewals. */
  async #removeRow(lease: LeaseHandle): Promise<void> {
    const { bus, store } = this.#parts;
    try {
      await store.releaseLease(lease.id);
    } catch (error) {
      bus.emit({ type: "close-failed", what: "remote lease", problem: problemOf(error) });
    }
  }

  /** A lease's row is gone: it expired, or another instance released it. */
  expire(lease: LeaseHandle, reason: LossReason): Slot {
    const { slot, id, purpose } = lease;
    this.#leases.delete(lease);
    slot.leases.delete(lease);
    lease.expire();
    lease.wasLost(reason, slot.generation);
    this.#parts.bus.emit({ type: "lease-lost", reason, leaseId: id, purpose, ...aboutRecord(slot) });
    return slot;
  }

  lost(slot: Slot, reason: LossReason): void {
    for (const { id, purpose } of slot.leases) {
      this.#parts.bus.emit({ type: "lease-lost", reason, leaseId: id, purpose, ...aboutRecord(slot) });
    }
  }

  /** Reports leases that are held but unused for too long, each once. */
  reportLeaks(): void {
    const { settings, world, bus } = this.#parts;
    const { afterMs } = settings.leakDetection;
    if (afterMs === 0) return;
    const now = world.monotonicMs();
    for (const lease of this.#leases) {
      if (!lease.isNewLeak(now, afterMs)) continue;
      bus.emit({
        type: "lease-leaked",
        unusedMs: lease.unusedMs(now),
        stack: lease.stack?.stack ?? null,
        leaseId: lease.id,
        purpose: lease.purpose,
        ...aboutRecord(lease.slot),
      });
    }
  }

  /** Remote callers get the id of a row, so it must not be guessable. Other ids never leave the process. */
  #newId(remote: boolean): LeaseId {
    if (remote) return this.#parts.world.randomHex(16) as LeaseId;
    this.#count += 1;
    return `${this.#parts.membership.instance}-${this.#count}` as LeaseId;
  }
}

/** The stack from the caller of `acquire` on. Only a leak formats it, because formatting costs more than capturing. */
function captureStack(acquire: (...input: never[]) => unknown): { readonly stack?: string } {
  const holder: { stack?: string } = {};
  Error.captureStackTrace(holder, acquire);
  return holder;
}
