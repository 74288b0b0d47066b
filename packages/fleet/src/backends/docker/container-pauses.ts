/**
 * Containers that stand still: parked ones are paused where that is configured, since a paused one keeps its memory and costs
 * no processor; and whoever wants one sees it running, whoever paused it.
 *
 *   last attachment here closed ─▶ nobody comes back soon ─▶ its daemon says: not held, nothing runs ─▶ paused
 *   attach ─▶ known to be paused? unpaused first ─▶ connected
 *
 * Which ones are paused is known from the engine's events, and from its list where events may have been missed. The engine is
 * asked about one container only when its daemon has not answered for `SILENCE_MS`.
 *
 * Invariants
 * - A container that somebody here wants (attaching or attached) is unpaused as soon as its pause is heard of.
 * - A pause of ours that crosses somebody's attach is taken back: here at once, elsewhere by whoever attaches there.
 * - Nothing is paused that a daemon has not called idle, and nothing where it is not configured.
 */

import type { FleetId } from "@sandlot/contract";
import { isSandlotError } from "@sandlot/contract";
import type { ObjectName } from "../../host/layout.ts";
import type { Timer, World } from "../../world/world.ts";
import type { Engine } from "./engine/engine.ts";
import { isRefusal } from "./engine/trouble.ts";
import { fleetFilter } from "./objects/labels.ts";

export interface PausingParts {
  readonly world: World;
  readonly engine: Engine;
  readonly fleetId: FleetId;
  /** Whether parked ones are paused. */
  readonly pausesParked: boolean;
  /** `null` when there is nobody to ask any more. */
  readonly isIdle: (name: ObjectName) => Promise<boolean | null>;
  /** It runs again after it stood still. */
  readonly onResumed: (name: ObjectName) => void;
  readonly onTrouble: (problem: string) => void;
}

export type Motion = "paused" | "running" | "gone";

/** Between two turns of a conversation that goes on nobody should wait for the engine. */
const PAUSE_AFTER_MS = 2_000;
/** What is at work is looked at again. */
const LOOK_AGAIN_MS = 10_000;
/** A daemon that runs answers far sooner, and one that is only slow loses nothing by the question. */
const SILENCE_MS = 300;
const RETRY_MS = 200;

export class ContainerPauses {
  readonly #parts: PausingParts;
  readonly #wanted = new Map<string, number>();
  readonly #paused = new Set<string>();
  /** A pause or unpause of ours that is under way. */
  readonly #acting = new Map<string, Promise<unknown>>();
  readonly #timers = new Map<string, Timer>();
  readonly #names = new Map<string, ObjectName>();
  #stopped = false;

  constructor(parts: PausingParts) {
    this.#parts = parts;
  }

  isPaused(containerId: string | null): boolean {
    return containerId !== null && this.#paused.has(containerId);
  }

  /** Somebody attaches, or is attached, until the answer is called. */
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

  /** A question to its daemon. One that is silent may be paused without our having heard of it. */
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
      if (this.#wanted.has(containerId)) this.#resume(containerId);
      return;
    }
    this.#paused.delete(containerId);
    const name = this.#names.get(containerId);
    if (motion === "running" && wasPaused && name !== undefined) this.#parts.onResumed(name);
    if (motion === "gone") {
      this.#cancel(containerId);
      this.#names.delete(containerId);
    }
  }

  /** Events may have been missed. Should the engine not answer, the next break of its events leads here again. */
  async look(): Promise<void> {
    const { engine, fleetId } = this.#parts;
    const listed = await engine.list(fleetFilter(fleetId)).catch(() => []);
    for (const { Id, State } of listed) this.heard(Id, State === "paused" ? "paused" : "running");
  }

  stop(): void {
    this.#stopped = true;
    for (const timer of this.#timers.values()) timer.cancel();
    this.#timers.clear();
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

  /** In nobody's call: tried again until it runs or nobody wants it any more. */
  #resume(containerId: string): void {
    const again = () => {
      if (!this.#stopped && this.#wanted.has(containerId) && this.#paused.has(containerId)) this.#resume(containerId);
    };
    this.#unpause(containerId).catch(() => void this.#parts.world.timer(RETRY_MS, again, { background: true }));
  }

  async #unpause(containerId: string): Promise<void> {
    try {
      await this.#act(containerId, this.#parts.engine.unpause(containerId));
    } catch (error) {
      if (!isSettled(error)) throw error;
    }
    this.#paused.delete(containerId);
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

/** It is gone, has ended, or is already as it should be, by somebody else whom we shall hear of. */
function isSettled(error: unknown): boolean {
  if (isRefusal(error, 404) || isRefusal(error, 409)) return true;
  return isRefusal(error, 500) && /(not|already) paused|not running/i.test(error.message);
}
