/**
 * Pauses parked containers where that is configured, since a paused one keeps its memory and costs no processor time;
 * and unpauses every container that a caller wants, also when another process paused it.
 *
 *   last attachment here closed ─▶ no attach soon after ─▶ its daemon reports: not held, nothing runs ─▶ paused
 *   attach ─▶ known to be paused? unpaused first ─▶ connected
 *
 * The engine's events show which ones are paused, and its list does where events may have been missed. A single
 * container is inspected only when its daemon has not responded for `SILENCE_MS`.
 *
 * Invariants
 * - A container that this process wants (attaching or attached) is unpaused as soon as an event reports its pause.
 * - A pause that is a freeze (`container-freezes.ts`) is left alone while its process lives, and undone when that is dead.
 * - A pause that crosses an attach is undone: in this process at once, in another process by its attach.
 * - Only containers whose daemon reported idle are paused, and only where that is configured.
 */

import { join } from "node:path";
import type { FleetId } from "@sandlot/contract";
import { isSandlotError } from "@sandlot/contract";
import type { Thaw } from "../../backend/backend.ts";
import { frozenFor } from "../../backend/frozen.ts";
import type { ObjectName } from "../../host/layout.ts";
import { sleep } from "../../world/waiting.ts";
import type { Timer, World } from "../../world/world.ts";
import { ContainerFreezes, isSettled } from "./container-freezes.ts";
import type { Engine } from "./engine/engine.ts";
import { fleetFilter } from "./objects/labels.ts";

export interface PausingParts {
  readonly world: World;
  readonly engine: Engine;
  readonly fleetId: FleetId;
  /** The fleet's on this machine. */
  readonly directory: string;
  /** Whether parked ones are paused. */
  readonly pausesParked: boolean;
  /** `null` when there is no daemon to ask any more. */
  readonly isIdle: (name: ObjectName) => Promise<boolean | null>;
  /** It runs again after a pause. */
  readonly onResumed: (name: ObjectName) => void;
  readonly onTrouble: (problem: string) => void;
}

export type Motion = "paused" | "running" | "gone";

/** A pause must not delay the next turn of a conversation. */
const PAUSE_AFTER_MS = 2_000;
/** When a busy container is checked again. */
const LOOK_AGAIN_MS = 10_000;
/** A running daemon responds far sooner; an extra check does no harm to a slow one. */
const SILENCE_MS = 300;
const RETRY_MS = 200;
/** When the process of a freeze is looked at again. */
const FREEZE_LOOK_MS = 2_000;

export class ContainerPauses {
  readonly #parts: PausingParts;
  readonly #freezes: ContainerFreezes;
  readonly #wanted = new Map<string, number>();
  readonly #paused = new Set<string>();
  /** Pauses and unpauses of this process that are under way. */
  readonly #acting = new Map<string, Promise<unknown>>();
  readonly #timers = new Map<string, Timer>();
  readonly #names = new Map<string, ObjectName>();
  #stopped = false;

  constructor(parts: PausingParts) {
    this.#parts = parts;
    const { world, engine, directory } = parts;
    this.#freezes = new ContainerFreezes({ world, engine, directory: join(directory, "frozen") });
  }

  /** `null` is a container that was never made. */
  async freeze(containerId: string | null, signal: AbortSignal, closing: AbortSignal): Promise<Thaw> {
    if (containerId === null) return async () => true;
    return frozenFor(signal, this.#freezes.freeze(containerId, AbortSignal.any([signal, closing])));
  }

  isPaused(containerId: string | null): boolean {
    return containerId !== null && this.#paused.has(containerId);
  }

  /** The caller attaches, or is attached, until it calls the returned function. */
  want(containerId: string | null, name: ObjectName): () => void {
    if (containerId === null) return () => {};
    this.#names.set(containerId, name);
    this.#cancel(containerId);
    this.#wanted.set(containerId, (this.#wanted.get(containerId) ?? 0) + 1);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      const left = (this.#wanted.get(containerId) ?? 1) - 1;
      if (left > 0) this.#wanted.set(containerId, left);
      else this.#wanted.delete(containerId);
      if (left === 0 && this.#parts.pausesParked) this.#plan(containerId, name, PAUSE_AFTER_MS);
    };
  }

  /** Whether `moving` has something to do. */
  mayStandStill(containerId: string | null): containerId is string {
    return containerId !== null && (this.#paused.has(containerId) || this.#acting.has(containerId));
  }

  /** Resolves when it runs, as far as is known. */
  async moving(containerId: string): Promise<void> {
    await this.#acting.get(containerId)?.catch(() => {});
    if (this.#paused.has(containerId)) await this.#unpause(containerId);
  }

  /** A request to its daemon. A silent daemon may be paused, with the event missed. */
  async unlessSilent<T>(containerId: string | null, call: () => Promise<T>): Promise<T> {
    if (containerId === null) return call();
    const timer = this.#parts.world.timer(SILENCE_MS, () => void this.#find(containerId));
    try {
      return await call();
    } finally {
      timer.cancel();
    }
  }

  heard(containerId: string, motion: Motion): void {
    const wasPaused = this.#paused.has(containerId);
    if (motion === "paused") {
      this.#paused.add(containerId);
      this.#freezes.heardPaused(containerId);
      if (this.#freezes.isHeld(containerId)) this.#lookAtFreeze(containerId);
      if (this.#wanted.has(containerId)) this.#resume(containerId);
      return;
    }
    this.#paused.delete(containerId);
    this.#freezes.heardRunning(containerId);
    const name = this.#names.get(containerId);
    if (motion === "running" && wasPaused && name !== undefined) this.#parts.onResumed(name);
    if (motion === "gone") {
      this.#cancel(containerId);
      this.#names.delete(containerId);
    }
  }

  /** Events may have been missed. If the engine does not respond, the next break of its events leads here again. */
  async look(): Promise<void> {
    const { engine, fleetId } = this.#parts;
    const listed = await engine.list(fleetFilter(fleetId)).catch(() => []);
    for (const { Id, State } of listed) this.heard(Id, State === "paused" ? "paused" : "running");
    for (const containerId of this.#freezes.left()) this.#thaw(containerId);
  }

  stop(): void {
    this.#stopped = true;
    for (const timer of this.#timers.values()) timer.cancel();
    this.#timers.clear();
  }

  /** No event says that the process of a freeze has died. */
  #lookAtFreeze(containerId: string): void {
    const look = () => {
      if (this.#stopped || !this.#paused.has(containerId)) return;
      if (this.#freezes.isHeld(containerId)) this.#lookAtFreeze(containerId);
      else if (this.#freezes.left().includes(containerId)) this.#thaw(containerId);
    };
    this.#parts.world.timer(FREEZE_LOOK_MS, look, { background: true });
  }

  /** Outside of any call: what fails now is tried again. */
  #thaw(containerId: string): void {
    const again = () => {
      if (!this.#stopped && this.#freezes.left().includes(containerId)) this.#thaw(containerId);
    };
    this.#freezes
      .thawLeft(containerId)
      .catch(() => void this.#parts.world.timer(FREEZE_LOOK_MS, again, { background: true }));
  }

  #plan(containerId: string, name: ObjectName, delayMs: number): void {
    if (this.#stopped) return;
    this.#cancel(containerId);
    const timer = this.#parts.world.timer(delayMs, () => void this.#consider(containerId, name), { background: true });
    this.#timers.set(containerId, timer);
  }

  #cancel(containerId: string): void {
    this.#timers.get(containerId)?.cancel();
    this.#timers.delete(containerId);
  }

  async #consider(containerId: string, name: ObjectName): Promise<void> {
    this.#timers.delete(containerId);
    const isOut = () => this.#stopped || this.#wanted.has(containerId) || this.#paused.has(containerId);
    if (isOut()) return;
    const idle = await this.#parts.isIdle(name).catch(() => false);
    if (idle === null || isOut()) return;
    if (idle) await this.#pause(containerId, name);
    else this.#plan(containerId, name, LOOK_AGAIN_MS);
  }

  async #pause(containerId: string, name: ObjectName): Promise<void> {
    const { engine, onTrouble } = this.#parts;
    try {
      await this.#act(containerId, engine.pause(containerId));
      this.#paused.add(containerId);
    } catch (error) {
      if (isSandlotError(error, "engine_unavailable")) this.#plan(containerId, name, LOOK_AGAIN_MS);
      else if (!isSettled(error)) onTrouble(`it could not be paused: ${error}`);
      return;
    }
    if (this.#wanted.has(containerId)) this.#resume(containerId);
  }

  /** Outside of any call: retries until it runs or is no longer wanted. */
  #resume(containerId: string): void {
    const again = () => {
      if (!this.#stopped && this.#wanted.has(containerId) && this.#paused.has(containerId)) this.#resume(containerId);
    };
    this.#unpause(containerId).catch(() => void this.#parts.world.timer(RETRY_MS, again, { background: true }));
  }

  async #unpause(containerId: string): Promise<void> {
    while (!this.#stopped && this.#freezes.isHeld(containerId)) await sleep(this.#parts.world, RETRY_MS);
    try {
      await this.#act(containerId, this.#parts.engine.unpause(containerId));
    } catch (error) {
      if (!isSettled(error)) throw error;
    }
    this.#paused.delete(containerId);
    this.#freezes.forgetLeft(containerId);
  }

  async #act(containerId: string, acting: Promise<void>): Promise<void> {
    this.#acting.set(containerId, acting);
    try {
      await acting;
    } finally {
      if (this.#acting.get(containerId) === acting) this.#acting.delete(containerId);
    }
  }

  async #find(containerId: string): Promise<void> {
    const found = await this.#parts.engine.inspect(containerId).catch(() => null);
    if (found?.State.Status === "paused") this.heard(containerId, "paused");
  }
}
