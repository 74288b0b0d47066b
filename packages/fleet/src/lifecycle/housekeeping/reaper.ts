/**
 * The reaper ends sandboxes that are due: parked too long, or past their lifetime.
 *
 * It never ends a held sandbox: the store refuses, in the same transaction that checks. It reaps only while this
 * instance may judge, because an old clock makes everything look idle.
 */

import type { Backend } from "../../backend/backend.ts";
import type { Settings } from "../../config/settings.ts";
import type { SandboxRecord } from "../../store/record.ts";
import type { Store } from "../../store/store.ts";
import { sideBySide, within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Membership } from "../session/membership.ts";
import type { Retirement } from "../stop/retirement.ts";
import { isBusy, planExpiry } from "./plans.ts";

export interface ReaperParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly membership: Membership;
  readonly retirement: Retirement;
  /** Aborted when the fleet closes. */
  readonly ending: AbortSignal;
}

/** How long to wait for sandboxes to report their activity. No response counts as busy. */
const ACTIVITY_PATIENCE_MS = 2_000;
/** How many sandboxes are asked at the same time. */
const PARALLEL_MAX = 32;
/** How many sandboxes are asked before an eviction; more would delay the waiting caller. */
const CANDIDATES_MAX = 8;

export class Reaper {
  readonly #parts: ReaperParts;
  /** Where the next round begins. */
  #turn = 0;

  constructor(parts: ReaperParts) {
    this.#parts = parts;
  }

  async reap(): Promise<void> {
    const { store, membership, retirement, settings } = this.#parts;
    if (!membership.mayJudge()) return;
    const records = (await store.list({ unheld: true })).filter((record) => membership.isOurs(record));
    const due = planExpiry(records, settings, membership.storeNow());
    const busy = await this.#busyAmong(due.flatMap(({ record, unlessBusy }) => (unlessBusy ? [record] : [])));
    for (const { record, reason } of due) {
      if (busy.has(record)) continue;
      if (!membership.mayJudge()) return;
      await retirement.stopUnheld(record, reason);
    }
  }

  /** Asks in parallel, within one deadline for all: silent sandboxes must not delay the others. */
  async #busyAmong(records: readonly SandboxRecord[]): Promise<ReadonlySet<SandboxRecord>> {
    const until = this.#parts.world.monotonicMs() + ACTIVITY_PATIENCE_MS;
    // Each round begins with another sandbox, so that many silent ones cannot starve the last.
    this.#turn = records.length === 0 ? 0 : (this.#turn + PARALLEL_MAX) % records.length;
    const turned = [...records.slice(this.#turn), ...records.slice(0, this.#turn)];
    const busy = new Set<SandboxRecord>();
    await sideBySide(turned, PARALLEL_MAX, async (record) => {
      if (await this.#isBusy(record, until)) busy.add(record);
    });
    return busy;
  }

  /** The idle sandboxes among these. Asks only the first few, all at once. */
  async idleAmong(records: readonly SandboxRecord[]): Promise<ReadonlySet<SandboxRecord>> {
    const asked = records.slice(0, CANDIDATES_MAX);
    const until = this.#parts.world.monotonicMs() + ACTIVITY_PATIENCE_MS;
    const busy = await Promise.all(asked.map((record) => this.#isBusy(record, until)));
    return new Set(asked.filter((_, index) => busy[index] === false));
  }

  /** A sandbox that cannot be asked does not count as idle. */
  async #isBusy({ ref }: SandboxRecord, until: number): Promise<boolean> {
    const { world, backend, settings, ending } = this.#parts;
    const leftMs = until - world.monotonicMs();
    if (ref === null || leftMs <= 0) return true;
    try {
      const late = () => new Error("no answer");
      const activity = await within(world, leftMs, ending, late, (signal) => backend.activity(ref, signal));
      return isBusy(activity, settings.activity, world.wallMs());
    } catch {
      return true;
    }
  }
}
