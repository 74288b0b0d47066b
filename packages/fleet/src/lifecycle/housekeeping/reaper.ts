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
import { type Expiry, isBusy, planExpiry } from "./plans.ts";

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
/** How many sandboxes are asked, and then ended, at the same time. */
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
    const { world, store, membership, retirement, settings } = this.#parts;
    if (!membership.mayJudge()) return;
    const records = (await store.list({ unheld: true })).filter((record) => membership.isOurs(record));
    const due = this.#turned(planExpiry(records, settings, membership.storeNow()));
    // One deadline for all responses: silent sandboxes must not delay the others.
    let patienceMs = ACTIVITY_PATIENCE_MS;
    for (let first = 0; first < due.length; first += PARALLEL_MAX) {
      const group = due.slice(first, first + PARALLEL_MAX);
      const askedAt = world.monotonicMs();
      const busy = await this.#busyAmong(group, askedAt + patienceMs);
      patienceMs -= world.monotonicMs() - askedAt;
      if (!membership.mayJudge()) return;
      // At once: while one stop waits for a slow store, work may begin in the next sandbox.
      await sideBySide(group, PARALLEL_MAX, async ({ record, reason }) => {
        if (!busy.has(record)) await retirement.stopUnheld(record, reason);
      });
    }
  }

  /** Each round begins with another sandbox, so that many silent ones cannot starve the last. */
  #turned(due: readonly Expiry[]): readonly Expiry[] {
    this.#turn = due.length === 0 ? 0 : (this.#turn + PARALLEL_MAX) % due.length;
    return [...due.slice(this.#turn), ...due.slice(0, this.#turn)];
  }

  async #busyAmong(group: readonly Expiry[], until: number): Promise<ReadonlySet<SandboxRecord>> {
    const busy = new Set<SandboxRecord>();
    const ask = async ({ record, unlessBusy }: Expiry) => {
      if (unlessBusy && (await this.#isBusy(record, until))) busy.add(record);
    };
    await Promise.all(group.map(ask));
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
