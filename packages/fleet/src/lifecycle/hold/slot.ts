/**
 * A slot: this instance's in-memory view of one sandbox in one generation, and the count of its leases.
 *
 * A write to the store (the hold) precedes the first lease of a slot, and another write follows the last release.
 * In between, leases come and go in memory only.
 *
 *   open ──▶ closing (the last lease was released; the hold is being given back)
 *     └────▶ lost    (the sandbox died, was destroyed, or our hold was lost)
 *
 * Invariants
 * - A slot has one generation for life. The next generation is another slot.
 * - `lose` happens at most once, removes the slot from every index at once, and notifies every lease.
 */

import {
  type AcquirePath,
  type DeathCause,
  type Epoch,
  type Generation,
  type LossReason,
  type Recovery,
  type Sandbox,
  type SandboxId,
  SandlotError,
  type ThreadId,
  type UserId,
} from "@sandlot/contract";
import type { Attachment } from "../../backend/backend.ts";
import type { ReadyRecord } from "../../store/record.ts";
import type { LeaseHandle } from "./lease.ts";

type SlotRecord = ReadyRecord & { readonly user: UserId; readonly thread: ThreadId };
type SlotState = "open" | "closing" | "lost";

export class Slot {
  readonly sandboxId: SandboxId;
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly generation: Generation;
  readonly recovery: Recovery;
  /** The path that opened it. */
  readonly origin: Exclude<AcquirePath, "held">;
  /** A lease has used it: for the next caller it is the same sandbox. */
  used = false;
  /** A caller asked for it with `warm`: the slot is worth keeping although it is unused. */
  warmed = false;
  /** The connection ended and the engine has not yet said whether the sandbox lives. */
  disconnected = false;
  /** On the store's clock: no new leases from then on. `Infinity` without a maximum lifetime. */
  expiresAt: number;
  readonly leases = new Set<LeaseHandle>();
  /** Why the sandbox ended, where its engine has reported that. */
  cause: DeathCause | undefined;
  readonly #onLost: (slot: Slot, reason: LossReason) => Promise<LossReason>;
  #state: SlotState = "open";
  #loss: Promise<LossReason> | null = null;
  #epoch: Epoch | null;
  #record: ReadyRecord;
  #seq: number;
  #attachment: Attachment;

  constructor(parts: {
    record: SlotRecord;
    seq: number;
    attachment: Attachment;
    recovery: Recovery;
    origin: Exclude<AcquirePath, "held">;
    expiresAt: number;
    /** The epoch in which the hold was taken. */
    epoch: Epoch | null;
    /** Returns the store's reason: a crash may turn out to be a `destroy`. */
    onLost: (slot: Slot, reason: LossReason) => Promise<LossReason>;
  }) {
    this.sandboxId = parts.record.sandboxId;
    this.user = parts.record.user;
    this.thread = parts.record.thread;
    this.generation = parts.record.generation;
    this.recovery = parts.recovery;
    this.origin = parts.origin;
    this.expiresAt = parts.expiresAt;
    this.#record = parts.record;
    this.#seq = parts.seq;
    this.#epoch = parts.epoch;
    this.#attachment = parts.attachment;
    this.#onLost = parts.onLost;
  }

  /** The record of the last confirmation of the hold. */
  get record(): ReadyRecord {
    return this.#record;
  }

  /** The counter of the hold in the store. */
  get seq(): number {
    return this.#seq;
  }

  get attachment(): Attachment {
    return this.#attachment;
  }

  get sandbox(): Sandbox {
    return this.#attachment.sandbox;
  }

  // State is read through methods, because TypeScript keeps a narrowed property across an `await`.
  isOpen(): boolean {
    return this.#state === "open";
  }

  isLost(): boolean {
    return this.#state === "lost";
  }

  /** Why it was lost, once that is certain; `null` while it is not lost. */
  get loss(): Promise<LossReason> | null {
    return this.#loss;
  }

  /** If the store has another epoch, the hold must be restored: that store does not know it. */
  get epoch(): Epoch | null {
    return this.#epoch;
  }

  heldAs(seq: number, record: ReadyRecord, epoch: Epoch | null): void {
    // Another holder may have restored the record first: the store's age counts.
    this.expiresAt += record.createdAt - this.#record.createdAt;
    this.#seq = seq;
    this.#record = record;
    this.#epoch = epoch;
  }

  /** The store has a new clock, which is ahead of the former one by this much. */
  clockMoved(byMs: number): void {
    this.expiresAt += byMs;
    this.#record = { ...this.#record, createdAt: this.#record.createdAt + byMs };
  }

  reattached(attachment: Attachment): void {
    this.#attachment = attachment;
    this.disconnected = false;
  }

  /** Closes after the last lease. False when other leases remain, or the slot is no longer open. */
  tryClose(): boolean {
    if (this.#state !== "open" || this.leases.size > 0) return false;
    this.#state = "closing";
    return true;
  }

  lose(reason: LossReason, cause?: DeathCause): void {
    if (this.#state === "lost") return;
    this.#state = "lost";
    this.cause = cause;
    this.#loss = this.#onLost(this, reason).then((certain) => {
      for (const lease of [...this.leases]) lease.wasLost(certain, this.generation);
      return certain;
    });
  }
}

/** Narrows a record to one that belongs to a thread. */
export function kept(record: ReadyRecord): SlotRecord {
  if (!hasThread(record)) throw new SandlotError("internal", { problem: `sandbox ${record.sandboxId} has no thread` });
  return record;
}

function hasThread(record: ReadyRecord): record is SlotRecord {
  return record.user !== null && record.thread !== null;
}

export function sandboxLost({ sandboxId, generation, cause }: Slot, reason: LossReason): SandlotError {
  return new SandlotError("sandbox_lost", { sandboxId, generation, reason, ...causeOf(reason, cause) });
}

/** Only a crash has a cause: any other loss was asked for. */
export function causeOf(reason: LossReason, cause: DeathCause | undefined): { readonly cause?: DeathCause } {
  return reason === "crashed" && cause !== undefined ? { cause } : {};
}

export function staleGeneration({ sandboxId, generation }: Slot, current: Generation | null): SandlotError {
  return new SandlotError("stale_generation", { sandboxId, generation, current });
}
