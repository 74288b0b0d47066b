/**
 * Liveness of the held sandboxes, as the engine reports it (rule 16).
 *
 * A lost connection or a failed use is a reason to ask the engine. Only the engine's `dead` means dead.
 */

import {
  type DeathCause,
  type EngineRef,
  isSandlotError,
  type LossReason,
  type SandboxId,
  SandlotError,
} from "@sandlot/contract";
import type { Attachment, Backend } from "../../backend/backend.ts";
import { type EventBus, problemOf, reportFailure } from "../../observe/event-bus.ts";
import type { SandboxRecord } from "../../store/record.ts";
import type { Store } from "../../store/store.ts";
import { type UnderWay, within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Slot } from "./slot.ts";
import type { Slots } from "./slots.ts";

export interface LivenessWatchParts {
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly slots: Slots;
  /** Reconnects a slot whose sandbox is alive. */
  readonly reattach: (slot: Slot, signal: AbortSignal) => Promise<void>;
  /** Stops the record of a dead sandbox. */
  readonly stopDead: (record: SandboxRecord) => Promise<unknown>;
  readonly bus: EventBus;
  /** How long the engine may take to answer. */
  readonly patienceMs: number;
  readonly underWay: UnderWay;
  /** Aborted when the fleet closes. */
  readonly ending: AbortSignal;
}

export class LivenessWatch {
  readonly #parts: LivenessWatchParts;
  readonly #examined = new Map<Slot, { readonly attachment: Attachment; readonly done: Promise<void> }>();

  constructor(parts: LivenessWatchParts) {
    this.#parts = parts;
  }

  /** A use failed. The error decides what to ask the engine. */
  suspect(slot: Slot, error: unknown): void {
    if (isSandlotError(error, "sandbox_lost") && error.details.generation === slot.generation) slot.lose("crashed");
    else if (isSandlotError(error, "sandbox_unreachable")) void this.examine(slot);
  }

  /** Asks the engine about a slot, and reconnects a live sandbox whose connection ended. Callers share one check. */
  examine(slot: Slot): Promise<void> {
    const { attachment } = slot;
    const asking = this.#examined.get(slot);
    if (asking?.attachment === attachment) return asking.done;
    // The slot has already reconnected, and that connection has ended too.
    if (asking !== undefined) return asking.done.then(() => (slot.disconnected ? this.examine(slot) : undefined));
    const done = this.#examine(slot).finally(() => this.#examined.delete(slot));
    this.#examined.set(slot, { attachment, done });
    return done;
  }

  async #examine(slot: Slot): Promise<void> {
    const { backend, reattach, bus, ending } = this.#parts;
    const { ref } = slot.record;
    if (!slot.isOpen() || ref === null) return;
    try {
      const liveness = await this.#ask(slot, (signal) => backend.probe(ref, signal));
      if (liveness === "dead") slot.lose("crashed");
      // All callers share a working connection, so one failed call is no reason to close it.
      else if (liveness === "alive" && slot.isOpen() && slot.disconnected)
        await this.#ask(slot, (signal) => reattach(slot, signal));
    } catch (error) {
      if (isSandlotError(error, "sandbox_lost")) slot.lose("crashed");
      else if (!ending.aborted) bus.emit({ type: "housekeeping-failed", task: "examine", problem: problemOf(error) });
    }
  }

  /** Examines every slot whose connection ended and for which the engine had no answer before. */
  async examineDisconnected(): Promise<void> {
    const disconnected = this.#parts.slots.held().filter((slot) => slot.disconnected);
    await Promise.all(disconnected.map((slot) => this.examine(slot)));
  }

  /** The engine reports that an object has ended. Its record is stopped, whether held here or parked. */
  async died(sandboxId: SandboxId, ref: EngineRef, cause?: DeathCause): Promise<void> {
    const { slots, bus, underWay } = this.#parts;
    const slot = slots.byId(sandboxId);
    if (slot?.record.ref === ref) slot.lose("crashed", cause);
    else await underWay.add(reportFailure(bus, "died", () => this.#stopIfReady(sandboxId, ref)));
  }

  /** Why a sandbox is gone: a crash, a `destroy` or a restore. Without a response from the store it counts as a crash. */
  async whyGone({ sandboxId, generation }: Slot): Promise<LossReason> {
    const { store, bus } = this.#parts;
    const record = await reportFailure(bus, "reason", () => store.get(sandboxId));
    if (record !== null && record.generation !== generation) return "superseded";
    const tombstone = await reportFailure(bus, "reason", () => store.tombstone(sandboxId));
    const reason = tombstone?.reason ?? record?.reason;
    return reason === "destroyed" || reason === "restored" ? reason : "crashed";
  }

  async #stopIfReady(sandboxId: SandboxId, ref: EngineRef): Promise<void> {
    const { store, stopDead } = this.#parts;
    const record = await store.get(sandboxId);
    if (record?.state === "ready" && record.ref === ref) await stopDead(record);
  }

  #ask<T>({ sandboxId }: Slot, ask: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { world, patienceMs, ending } = this.#parts;
    const late = () =>
      new SandlotError("sandbox_unreachable", { sandboxId, problem: "no answer in time", retryAfterMs: 1_000 });
    return within(world, patienceMs, ending, late, ask);
  }
}
