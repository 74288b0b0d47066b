/**
 * The reaper: ends what is due. Parked too long, past its lifetime, left by a lease that was not renewed.
 *
 * It never ends what somebody holds: the store refuses, in the same transaction that looks. It reaps only while this
 * instance may judge, because an old clock makes everything look idle.
 */

import type { Generation, LeaseId } from "@sandlot/contract";
import type { Backend } from "../backend/backend.ts";
import type { Settings } from "../config/settings.ts";
import type { Leases } from "../leases/leases.ts";
import type { Membership } from "../membership/membership.ts";
import type { Retirement } from "../retirement/retirement.ts";
import type { LeaseHandle } from "../slot/lease.ts";
import type { Slot } from "../slot/slot.ts";
import type { SandboxRecord } from "../store/record.ts";
import type { Store } from "../store/store.ts";
import { within } from "../world/waiting.ts";
import type { World } from "../world/world.ts";
import { isBusy, planExpiry } from "./plans.ts";
import { Sightings } from "./sightings.ts";

export interface ReaperParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly membership: Membership;
  readonly retirement: Retirement;
  readonly leases: Leases;
  /** A slot may have lost its last lease. */
  readonly parkIfUnused: (slot: Slot) => void;
}

/** How long to wait for a sandbox to tell what it is doing. No answer counts as busy. */
const ACTIVITY_PATIENCE_MS = 2_000;
/** How many sandboxes are asked when somebody is to be evicted; more would make a waiting caller wait longer. */
const CANDIDATES_MAX = 8;

export class Reaper {
  readonly #parts: ReaperParts;
  readonly #renewals = new Sightings<LeaseId, string>();
  readonly #missing = new Sightings<LeaseId, true>();

  constructor(parts: ReaperParts) {
    this.#parts = parts;
  }

  async reap(): Promise<void> {
    const { store, membership, retirement, settings } = this.#parts;
    if (!membership.mayJudge()) return;
    const records = await store.list();
    await this.#expireLeases(records);
    for (const { record, reason, unlessBusy } of planExpiry(records, settings, membership.storeNow())) {
      if (unlessBusy && (await this.#isBusy(record))) continue;
      if (!membership.mayJudge()) return;
      await retirement.stopUnheld(record, reason);
    }
  }

  /** Which of these have nothing going on inside. Asked of the first few only, all at once. */
  async idleAmong(records: readonly SandboxRecord[]): Promise<ReadonlySet<SandboxRecord>> {
    const asked = records.slice(0, CANDIDATES_MAX);
    const busy = await Promise.all(asked.map((record) => this.#isBusy(record)));
    return new Set(asked.filter((_, index) => busy[index] === false));
  }

  /** Not being able to ask is not idleness. */
  async #isBusy({ ref }: SandboxRecord): Promise<boolean> {
    const { world, backend, settings } = this.#parts;
    if (ref === null) return true;
    try {
      const late = () => new Error("no answer");
      const activity = await within(world, ACTIVITY_PATIENCE_MS, undefined, late, (signal) =>
        backend.activity(ref, signal),
      );
      return isBusy(activity, settings.activity, world.wallMs());
    } catch {
      return true;
    }
  }

  async #expireLeases(records: readonly SandboxRecord[]): Promise<void> {
    const { world, store, membership } = this.#parts;
    const rows = records.flatMap(
      ({ leases }) => Object.entries(leases) as [LeaseId, SandboxRecord["leases"][LeaseId]][],
    );
    const beats = rows.flatMap(([leaseId, row]) =>
      // One that was released and granted again begins again at its first beat.
      row === undefined ? [] : [[leaseId, `${row.generation}.${row.acquiredAt}.${row.beat}`] as const],
    );
    const unrenewedFor = this.#renewals.observe(beats, world.monotonicMs(), membership.sightSince());
    const present = new Map(rows.flatMap(([leaseId, row]) => (row === undefined ? [] : [[leaseId, row.generation]])));
    for (const [leaseId, row] of rows) {
      if (row === undefined || (unrenewedFor.get(leaseId) ?? 0) < row.ttlMs) continue;
      if (!membership.mayJudge()) return;
      if (await store.expireLease(leaseId, row)) present.delete(leaseId);
    }
    await this.#noticeExpired(present);
  }

  /** A row that went with its sandbox is no expiry: the loss of the sandbox is told by whoever notices it. */
  async #hasNoRow({ id, slot }: LeaseHandle): Promise<boolean> {
    const { store } = this.#parts;
    const record = await store.get(slot.sandboxId);
    return record?.state === "ready" && record.generation === slot.generation && !(id in record.leases);
  }

  /**
   * Leases of ours whose row is gone, whoever removed it, and those without a row that nobody came back to. As long as
   * a row is there, somebody renews it, at whichever instance, also while its sandbox is lost to us.
   */
  async #noticeExpired(present: ReadonlyMap<LeaseId, Generation>): Promise<void> {
    const { world, leases, membership, parkIfUnused } = this.#parts;
    const remote = [...leases.all()].filter(({ ttlMs }) => ttlMs !== null);
    // A grant that took effect without our hearing of it.
    for (const lease of remote) if (present.get(lease.id) === lease.generation && !lease.granting) lease.granted = true;
    const missing = remote.flatMap(({ id }) => (present.has(id) ? [] : [[id, true] as const]));
    const missingFor = this.#missing.observe(missing, world.monotonicMs(), membership.sightSince());
    for (const lease of remote) {
      const ttlMs = lease.ttlMs ?? 0;
      const hasRow = () => lease.granted && !lease.slot.isLost();
      const isUnheardOf = () => Math.min(missingFor.get(lease.id) ?? 0, lease.unusedMs(world.monotonicMs())) >= ttlMs;
      const isForgotten = () => !hasRow() && !lease.granting && isUnheardOf();
      const gone = hasRow() && !present.has(lease.id) && (await this.#hasNoRow(lease));
      // Asked again, because it may have been released, lost or restarted while the store was asked.
      if (!lease.isReleased() && ((gone && hasRow()) || isForgotten())) parkIfUnused(leases.expire(lease, "expired"));
    }
  }
}
