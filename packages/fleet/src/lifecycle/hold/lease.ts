/**
 * A lease: one caller's right to use a sandbox.
 *
 *   held ──▶ granting ──▶ granted     only with a `ttlMs`: the row of the lease is being written, or is in the store
 *     └─────────┴────────────┴──────▶ ended
 *
 * Invariants
 * - A release ends only this lease, once, whatever state the sandbox or the store is in.
 * - A lease belongs to one slot at a time. When that slot is lost and the fleet restarts, the lease moves to the slot
 *   of the next generation, with a new `generation` and `recovery`. It is then `held`: its row is written anew.
 * - `sandbox` is an object of one generation. A restart replaces the object, and the old one is stale.
 */

import type { Duplex } from "node:stream";
import { inspect } from "node:util";
import {
  type Generation,
  isSandlotError,
  type LeaseId,
  type LossReason,
  type Recovery,
  type Sandbox,
  SandlotError,
} from "@sandlot/contract";
import type { Lease, TakeCheckpointOptions, TakenCheckpoint } from "../../fleet.ts";
import type { World } from "../../world/world.ts";
import { type Gate, guarded } from "./guarded-sandbox.ts";
import { NOTHING_LEFT } from "./recoveries.ts";
import { type Slot, sandboxLost, staleGeneration } from "./slot.ts";

type LeaseState = "held" | "granting" | "granted" | "ended";
type Loss = { readonly reason: LossReason; readonly generation: Generation };

/** What a lease needs from the provider. */
export interface LeaseController {
  release(lease: LeaseHandle): Promise<void>;
  /** The slot of the next generation, or a rejection that gives the reason. */
  restart(lease: LeaseHandle): Promise<Slot>;
  /** A use failed in a way that may mean the sandbox is gone. */
  suspect(slot: Slot, error: unknown): void;
}

/** A checkpoint of the thread's workspace. */
export type TakeCheckpoint = (
  key: Pick<Slot, "user" | "thread">,
  options: TakeCheckpointOptions,
) => Promise<TakenCheckpoint>;

interface LeaseParts {
  readonly id: LeaseId;
  readonly purpose: string;
  /** On the wall clock. */
  readonly acquiredAt: number;
  /** The start of the hold, on the monotonic clock. */
  readonly since: number;
  /** The stack of the acquire call, if stacks are captured. */
  readonly stack: { readonly stack?: string } | null;
  /** Set for a lease with a row in the store. */
  readonly ttlMs: number | null;
  readonly slot: Slot;
  readonly recovery: Recovery;
  readonly controller: LeaseController;
  readonly checkpoint: TakeCheckpoint;
  readonly clock: Pick<World, "monotonicMs">;
}

export class LeaseHandle implements Lease {
  readonly id: LeaseId;
  readonly purpose: string;
  readonly acquiredAt: number;
  readonly since: number;
  readonly stack: LeaseParts["stack"];
  readonly ttlMs: number | null;
  readonly controller: LeaseController;
  readonly #checkpoint: TakeCheckpoint;
  readonly #clock: LeaseParts["clock"];
  #state: LeaseState = "held";
  #slot: Slot;
  #recovery: Recovery;
  #gate: LeaseGate | null = null;
  #release: Promise<void> | null = null;
  #usesUnderWay = 0;
  /** On the monotonic clock. */
  #lastUsedAt: number;
  /** The `#lastUsedAt` for which a leak was reported. */
  #leakReportedFor: number | null = null;
  #listeners: Set<(loss: Loss) => void> | null = null;

  constructor(parts: LeaseParts) {
    this.id = parts.id;
    this.purpose = parts.purpose;
    this.acquiredAt = parts.acquiredAt;
    this.since = parts.since;
    this.stack = parts.stack;
    this.ttlMs = parts.ttlMs;
    this.controller = parts.controller;
    this.#checkpoint = parts.checkpoint;
    this.#clock = parts.clock;
    this.#slot = parts.slot;
    this.#recovery = parts.recovery;
    this.#lastUsedAt = parts.since;
  }

  /** The `console.log` output: holder and sandbox, without internals. */
  [inspect.custom](): string {
    const { id, purpose, recovery, slot } = this;
    const whose = `user: '${slot.user}', thread: '${slot.thread}'`;
    return `Lease { id: '${id}', purpose: ${JSON.stringify(purpose)}, ${whose}, sandbox: '${slot.sandboxId}', recovery: '${recovery.kind}' }`;
  }

  get sandbox(): Sandbox {
    return this.#guard.sandbox;
  }

  connect(port: number, options: { readonly signal?: AbortSignal } = {}): Promise<Duplex> {
    return this.#guard.connect(port, options.signal);
  }

  get #guard(): LeaseGate {
    this.#gate ??= new LeaseGate(this, this.#slot);
    return this.#gate;
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

  onLost(listener: (loss: Loss) => void): () => void {
    this.#listeners ??= new Set();
    this.#listeners.add(listener);
    return () => this.#listeners?.delete(listener);
  }

  async checkpoint(options: TakeCheckpointOptions = {}): Promise<TakenCheckpoint> {
    if (this.isReleased()) throw new SandlotError("lease_released", { leaseId: this.id });
    return this.#checkpoint(this.#slot, options);
  }

  // ── Its end ────────────────────────────────────────────────────────────────────────────────────────────────────

  release(): Promise<void> {
    if (this.#state !== "ended") {
      this.#state = "ended";
      this.#release = this.controller.release(this);
    }
    return this.#release ?? Promise.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }

  /** The lease ended because it was not renewed in time. */
  expire(): void {
    this.#state = "ended";
  }

  isReleased(): boolean {
    return this.#state === "ended";
  }

  // ── Its row in the store ───────────────────────────────────────────────────────────────────────────────────────

  /** Writes the row for the present slot. Returns whether the store took it. */
  async grant(write: () => Promise<boolean>): Promise<boolean> {
    const slot = this.#slot;
    let granted = false;
    this.#move("granting");
    try {
      granted = await write();
    } finally {
      // A lease that moved meanwhile needs the row of its next slot.
      if (this.#slot === slot) this.#move(granted ? "granted" : "held");
    }
    return granted;
  }

  isGranting(): boolean {
    return this.#state === "granting";
  }

  isGranted(): boolean {
    return this.#state === "granted";
  }

  /** The store has the row; the response to the grant may have been lost. */
  sawRow(): void {
    if (this.#state === "held") this.#state = "granted";
  }

  // ── Its slot ───────────────────────────────────────────────────────────────────────────────────────────────────

  moveTo(slot: Slot): void {
    this.#slot.leases.delete(this);
    this.#slot = slot;
    this.#gate = null;
    // This lease had a workspace before. If the next generation begins without one, the workspace was lost too.
    this.#recovery = slot.recovery.kind === "empty" ? NOTHING_LEFT : slot.recovery;
    slot.leases.add(this);
    this.#move("held");
  }

  /** Called by the slot. A listener that throws affects neither the fleet nor the other listeners. */
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

  // ── Its uses ───────────────────────────────────────────────────────────────────────────────────────────────────

  useBegins(): void {
    this.#usesUnderWay += 1;
  }

  useEnds(): void {
    this.#usesUnderWay -= 1;
    this.#lastUsedAt = this.#clock.monotonicMs();
  }

  /** 0 while in use, otherwise the milliseconds since the last use. */
  unusedMs(now: number): number {
    return this.#usesUnderWay > 0 ? 0 : now - this.#lastUsedAt;
  }

  /** True once per leak: the lease is unused for that long, and this was not reported since its last use. */
  isNewLeak(now: number, afterMs: number): boolean {
    if (this.unusedMs(now) < afterMs || this.#leakReportedFor === this.#lastUsedAt) return false;
    this.#leakReportedFor = this.#lastUsedAt;
    return true;
  }

  #move(state: LeaseState): void {
    if (this.#state !== "ended") this.#state = state;
  }
}

/**
 * The gate of a lease's sandbox of one generation. It checks before every use:
 *
 *   released            → lease_released
 *   lease moved on      → stale_generation      (take `lease.sandbox` again)
 *   slot lost           → restart, then the use runs in the next generation; or sandbox_lost without autoRestart
 *   otherwise           → the backend's sandbox, whose daemon checks generation and token once more
 */
class LeaseGate implements Gate {
  readonly #lease: LeaseHandle;
  readonly #slot: Slot;
  #sandbox: Sandbox | null = null;

  constructor(lease: LeaseHandle, slot: Slot) {
    this.#lease = lease;
    this.#slot = slot;
  }

  get sandbox(): Sandbox {
    this.#sandbox ??= guarded(this.#slot.sandboxId, this.#slot.generation, this);
    return this.#sandbox;
  }

  /** A connection to a listening port inside. */
  connect(port: number, signal?: AbortSignal): Promise<Duplex> {
    return this.#use(({ attachment, record }) => {
      if (attachment.connect !== undefined) return attachment.connect(port, signal);
      const { backend } = record;
      throw new SandlotError("capability_missing", {
        backend,
        capability: "preview",
        neededBy: "connecting to a port",
      });
    });
  }

  use<T>(use: (sandbox: Sandbox) => Promise<T>): Promise<T> {
    return this.#use(({ sandbox }) => use(sandbox));
  }

  async *stream<T>(open: (sandbox: Sandbox) => AsyncIterable<T>): AsyncGenerator<T> {
    const lease = this.#lease;
    const { slot, pieces } = await this.#use(async (slot) => ({
      slot,
      pieces: open(slot.sandbox)[Symbol.asyncIterator](),
    }));
    try {
      for (;;) {
        const next = await this.#useOf(slot, () => pieces.next());
        if (next.done === true) return;
        if (lease.isReleased()) throw released(lease);
        yield next.value;
      }
    } finally {
      await pieces.return?.();
    }
  }

  check(): void {
    const lease = this.#lease;
    if (lease.isReleased()) throw released(lease);
    if (lease.slot !== this.#slot) throw staleGeneration(this.#slot, lease.slot.generation);
  }

  /** Runs a use in the present slot. If that slot was lost, the lease first moves to the next one. */
  async #use<T>(use: (slot: Slot) => Promise<T>): Promise<T> {
    this.check();
    let slot = this.#slot;
    // The next slot may also be lost between being found and this turn.
    while (!slot.isOpen()) slot = await this.#restart();
    return this.#useOf(slot, use);
  }

  async #restart(): Promise<Slot> {
    const lease = this.#lease;
    lease.useBegins();
    try {
      return await lease.controller.restart(lease);
    } finally {
      lease.useEnds();
    }
  }

  async #useOf<T>(slot: Slot, use: (slot: Slot) => Promise<T>): Promise<T> {
    const lease = this.#lease;
    lease.useBegins();
    try {
      return await use(slot);
    } catch (error) {
      // The running processes are lost, even if the next use finds a new sandbox.
      lease.controller.suspect(slot, error);
      const loss = isSandlotError(error, "sandbox_unreachable") ? slot.loss : null;
      throw loss === null ? error : sandboxLost(slot, await loss);
    } finally {
      lease.useEnds();
    }
  }
}

function released({ id }: LeaseHandle): SandlotError {
  return new SandlotError("lease_released", { leaseId: id });
}
