/**
 * Removes records of provisioned sandboxes that have ended, in the background: after a create, and now and then, so that
 * a client that has gone away leaves nothing behind.
 *
 * Invariants
 * - Files of a thread that an id owns go with its record, except where a later sandbox of the thread may have written
 *   them: that one was not the id's.
 * - What cannot be removed now, as the engine's records recover or the thread is in use again, stays for a later sweep,
 *   and an event says so. One such record keeps none of the others. A thread that is elsewhere is swept there.
 */

import { isSandlotError } from "@sandlot/contract";
import type { Fleet } from "../../fleet.ts";
import { problemOf } from "../../observe/event-bus.ts";
import type { Timer, World } from "../../world/world.ts";
import type { ThreadUse } from "../thread-use.ts";
import type { LivingRecords } from "./living-records.ts";
import type { ProvisionedSandbox, ProvisionedSandboxes } from "./provisioned-sandboxes.ts";

export interface SweepParts {
  readonly fleet: Pick<Fleet, "explain" | "events">;
  readonly threads: Pick<ThreadUse, "destroy">;
  readonly records: ProvisionedSandboxes;
  readonly living: LivingRecords;
  readonly world: World;
  readonly draining: AbortSignal;
}

/** A record that is younger than this may be of a create that is still under way. */
const SWEEP_AFTER_MS = 600_000;
/** Rare, because a fleet at rest should ask its store for nothing. */
const SWEEP_EVERY_MS = 600_000;
/** For how many records a create may wait that finds no room. */
const SOME_MAX = 10;
const STOP_MS = 8_000;
/** How many that stay have an event of their own. An engine that is away may have thousands. */
const TOLD_MAX = 10;
const TASK = "provisioned records";

export class RecordSweep {
  readonly #parts: SweepParts;
  #turns = 0;
  #isSweeping = false;
  #timer: Timer | null = null;

  constructor(parts: SweepParts) {
    this.#parts = parts;
  }

  /** Sweeps from now on by itself, until the gateway drains. */
  begin(): void {
    this.#next();
    this.#parts.draining.addEventListener("abort", () => this.#timer?.cancel(), { once: true });
  }

  /** All of them, in the background. */
  soon(): void {
    if (!this.#isSweeping && !this.#parts.draining.aborted) void this.#all();
  }

  /** A few of them; others with the next call, so that none that stays is in the way. */
  async some(signal: AbortSignal): Promise<void> {
    const ended = await this.#ended();
    const first = this.#turns++ % Math.max(1, Math.ceil(ended.length / SOME_MAX));
    await this.#sweep(ended.slice(first * SOME_MAX, (first + 1) * SOME_MAX), signal);
  }

  #next(): void {
    const { world, draining } = this.#parts;
    if (draining.aborted) return;
    const again = () => {
      this.soon();
      this.#next();
    };
    this.#timer = world.timer(SWEEP_EVERY_MS, again, { background: true });
  }

  async #all(): Promise<void> {
    const { fleet, draining } = this.#parts;
    this.#isSweeping = true;
    try {
      await this.#sweep(await this.#ended(), draining);
    } catch (error) {
      if (!draining.aborted) fleet.events.report(TASK, problemOf(error));
    } finally {
      this.#isSweeping = false;
    }
  }

  async #ended(): Promise<readonly ProvisionedSandbox[]> {
    const { records, world, living } = this.#parts;
    const before = world.wallMs() - SWEEP_AFTER_MS;
    return living.doubtful((await records.all()).filter(({ createdAt }) => createdAt < before));
  }

  async #sweep(ended: readonly ProvisionedSandbox[], signal: AbortSignal): Promise<void> {
    const { events } = this.#parts.fleet;
    let stayed = 0;
    for (const record of ended) {
      signal.throwIfAborted();
      try {
        await this.#sweepOne(record, signal);
      } catch (error) {
        if (!isSandlotError(error)) throw error;
        if (error.code === "thread_elsewhere") continue;
        stayed += 1;
        if (stayed <= TOLD_MAX) events.report(TASK, `${record.user}/${record.thread} stays: ${problemOf(error)}`);
      }
    }
    if (stayed > TOLD_MAX) events.report(TASK, `${stayed - TOLD_MAX} more stay`);
  }

  async #sweepOne(record: ProvisionedSandbox, signal: AbortSignal): Promise<void> {
    const { records, threads, living } = this.#parts;
    if ((await living.one(record)) !== null) return;
    const { user, thread, ownsThread } = record;
    if (ownsThread && (await this.#wasLast(record)))
      await threads.destroy({ user, thread }, { purge: true, timeoutMs: STOP_MS }, signal);
    await records.remove(record);
  }

  /** Whether the record's sandbox is the last that the thread had. One that ended too long ago is not known any more. */
  async #wasLast({ user, thread, sandboxId }: ProvisionedSandbox): Promise<boolean> {
    try {
      return (await this.#parts.fleet.explain({ user, thread })).sandboxId === sandboxId;
    } catch (error) {
      if (isSandlotError(error, "thread_not_found")) return false;
      throw error;
    }
  }
}
