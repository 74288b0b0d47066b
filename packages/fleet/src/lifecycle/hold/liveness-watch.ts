/**
 * Liveness of what this instance holds, as the engine tells it (rule 16).
 *
 * A connection that ended, or a use that failed, is a reason to ask. Only the engine's `dead` means dead.
 */

import { type EngineRef, isSandlotError, type LossReason, type SandboxId, SandlotError } from "@sandlot/contract";
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
  /** Connects a slot again whose sandbox is alive. */
  readonly reattach: (slot: Slot, signal: AbortSignal) => Promise<void>;
  /** Stops the record of a sandbox that is dead. */
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

  /** A use failed. What it says decides what to ask. */
  suspect(slot: Slot, error: unknown): void {
    if (isSandlotError(error, "sandbox_lost") && error.details.generation === slot.generation) slot.lose("crashed");
    else if (isSandlotError(error, "sandbox_unreachable")) void this.examine(slot);
  }

  /** Asks the engine about a slot, and connects again where it lives and its connection ended. One asks for all. */
  examine(slot: Slot): Promise<void> {
    const { attachment } = slot;
    const asking = this.#examined.get(slot);
    if (asking?.attachment === attachment) return asking.done;
    // It has connected again already, and that connection has ended, too.
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
      // A connection that stands is everybody's: a call that failed on it is no reason to close it under the others.
      else if (liveness === "alive" && slot.isOpen() && slot.disconnected)
        await this.#ask(slot, (signal) => reattach(slot, signal));
    } catch (error) {
      if (isSandlotError(error, "sandbox_lost")) slot.lose("crashed");
      else if (!ending.aborted) bus.emit({ type: "housekeeping-failed", task: "examine", problem: problemOf(error) });
    }
  }

  /** Asks about every slot whose connection ended and which the engine could not tell about before. */
  async examineDisconnected(): Promise<void> {
    const disconnected = this.#parts.slots.held().filter((slot) => slot.disconnected);
    await Promise.all(disconnected.map((slot) => this.examine(slot)));
  }

  /** The engine says that an object has ended. Held here or parked, its record is stopped. */
  async died(sandboxId: SandboxId, ref: EngineRef): Promise<void> {
    const { slots, bus, underWay } = this.#parts;
    const slot = slots.byId(sandboxId);
    if (slot?.record.ref === ref) slot.lose("crashed");
    else await underWay.add(reportFailure(bus, "died", () => this.#stopIfReady(sandboxId, ref)));
  }

  /** A sandbox is gone: by itself, or because somebody destroyed it? Without an answer it counts as a crash. */
  async whyGone({ sandboxId, generation }: Slot): Promise<LossReason> {
    const { store, bus } = this.#parts;
    const record = await reportFailure(bus, "reason", () => store.get(sandboxId));
    if (record !== null && record.generation !== generation) return "superseded";
    const tombstone = await reportFailure(bus, "reason", () => store.tombstone(sandboxId));
    const reason = tombstone?.reason ?? record?.reason;
    return reason === "destroyed" ? "destroyed" : "crashed";
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
