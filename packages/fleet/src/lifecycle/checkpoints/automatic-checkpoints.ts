/**
 * Checkpoints that no caller asks for: when a thread's last lease ends, when it has been quiet for a while under a lease
 * that goes on, and when its sandbox has ended.
 *
 * Invariants
 * - They run beside everything else: no release, acquire or stop waits for one. Only a closing fleet does, for a bounded
 *   time: a short-lived process would otherwise never take any.
 * - One per thread at a time, a few in all, each with a deadline. A request during one is served after it.
 * - A failure or a refusal is an event, and the thread goes on.
 */

import { isSandlotError, type ThreadId, type UserId } from "@sandlot/contract";
import type { Backend } from "../../backend/backend.ts";
import type { WorkspaceOwner } from "../../backend/checkpoints.ts";
import { checkpointsOf } from "../../config/checkpoints-of.ts";
import type { Settings } from "../../config/settings.ts";
import { type EventBus, problemOf } from "../../observe/event-bus.ts";
import { isAnonymous } from "../../store/record.ts";
import { atMost, within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Slot } from "../hold/slot.ts";
import type { Slots } from "../hold/slots.ts";
import type { ThreadCheckpoints } from "./thread-checkpoints.ts";

export interface AutomaticCheckpointsParts {
  readonly world: World;
  readonly bus: EventBus;
  readonly quietMs: number;
  readonly timeoutMs: number;
  readonly concurrentMax: number;
  /** Whether threads of this blueprint get any. */
  readonly wants: (blueprint: string) => boolean;
  readonly held: () => readonly Slot[];
  readonly take: (owner: WorkspaceOwner, signal: AbortSignal) => Promise<unknown>;
}

/** `null` where the backend has none, or no blueprint wants any. */
export function automaticCheckpoints({
  settings,
  backend,
  slots,
  checkpoints,
  ...parts
}: Pick<AutomaticCheckpointsParts, "world" | "bus"> & {
  readonly settings: Settings;
  readonly backend: Backend;
  readonly slots: Slots;
  readonly checkpoints: ThreadCheckpoints;
}): AutomaticCheckpoints | null {
  const { quietMs, timeoutMs, concurrentMax } = settings.checkpoints;
  const wants = (blueprint: string) => checkpointsOf(settings, blueprint).automatic;
  if (backend.checkpoints === undefined || !Object.keys(settings.blueprints).some(wants)) return null;
  const take = (owner: WorkspaceOwner, signal: AbortSignal) => checkpoints.takeQuietly(owner, signal);
  return new AutomaticCheckpoints({
    ...parts,
    wants,
    quietMs,
    timeoutMs,
    concurrentMax,
    held: () => slots.held(),
    take,
  });
}

/** How long a closing fleet waits for those that are due. */
const CLOSE_PATIENCE_MS = 10_000;

class AutomaticCheckpoints {
  readonly #parts: AutomaticCheckpointsParts;
  readonly #ending = new AbortController();
  readonly #due = new Map<string, WorkspaceOwner>();
  readonly #running = new Map<string, Promise<void>>();
  /** Up to which use each slot has been served, on the monotonic clock. */
  readonly #servedUntil = new WeakMap<Slot, number>();
  readonly #unfollow: () => void;

  constructor(parts: AutomaticCheckpointsParts) {
    this.#parts = parts;
    this.#unfollow = parts.bus.on(
      (event) => {
        if (event.type === "sandbox-parked" || event.type === "sandbox-stopped")
          this.#ask(event.user, event.thread, event.blueprint);
      },
      "sandbox-parked",
      "sandbox-stopped",
    );
  }

  /** Asks for the threads whose leases have been quiet for long enough. */
  async look(): Promise<void> {
    const { world, held, quietMs } = this.#parts;
    const now = world.monotonicMs();
    for (const slot of held()) {
      const unusedMs = Math.min(...[...slot.leases].map((lease) => lease.unusedMs(now)));
      if (!Number.isFinite(unusedMs) || unusedMs < quietMs) continue;
      const lastUse = now - unusedMs;
      if ((this.#servedUntil.get(slot) ?? Number.NEGATIVE_INFINITY) >= lastUse) continue;
      this.#servedUntil.set(slot, lastUse);
      this.#ask(slot.user, slot.thread, slot.record.blueprint);
    }
  }

  /** Serves what is due, for a bounded time, and ends the rest. */
  async close(): Promise<void> {
    this.#unfollow();
    const { world } = this.#parts;
    await atMost(world, CLOSE_PATIENCE_MS, this.#idle());
    this.#due.clear();
    this.#ending.abort(new Error("the fleet closes"));
    await this.#idle();
  }

  async #idle(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running.values());
  }

  #ask(user: UserId | null, thread: ThreadId | null, blueprint: string): void {
    if (user === null || thread === null || isAnonymous(thread) || this.#ending.signal.aborted) return;
    if (!this.#parts.wants(blueprint)) return;
    this.#due.set(`${user}\n${thread}`, { user, thread });
    this.#begin();
  }

  #begin(): void {
    const { concurrentMax } = this.#parts;
    for (const [key, owner] of this.#due) {
      if (this.#running.size >= concurrentMax) return;
      if (this.#running.has(key)) continue;
      this.#due.delete(key);
      const run = this.#take(owner).finally(() => {
        this.#running.delete(key);
        this.#begin();
      });
      this.#running.set(key, run);
    }
  }

  async #take(owner: WorkspaceOwner): Promise<void> {
    const { world, bus, take, timeoutMs } = this.#parts;
    const late = () => new Error(`it was not done within ${timeoutMs} ms`);
    try {
      await within(world, timeoutMs, this.#ending.signal, late, (signal) => take(owner, signal));
    } catch (error) {
      if (this.#ending.signal.aborted) return;
      const code = isSandlotError(error) ? error.code : null;
      bus.emit({ type: "checkpoint-failed", ...owner, code, problem: problemOf(error) });
    }
  }
}
