/**
 * Ends remote leases that are not renewed (rule 8). It has its own loop, which never waits for the engine: a sandbox
 * that does not respond must not keep a lease alive.
 *
 * A lease is over when this instance saw the same beat for its `ttlMs`, on its own clock and with an unbroken view.
 * Renewals through this instance are noted directly. One timer waits for the next lease that would be due. Only when
 * that lease is really due does the loop read rows, and only the records that have leases.
 */

import type { Generation, LeaseId } from "@sandlot/contract";
import type { RemoteLease, SandboxRecord } from "../../store/record.ts";
import type { RemoteLeaseView, Store } from "../../store/store.ts";
import type { Timer, World } from "../../world/world.ts";
import type { LeaseHandle } from "../hold/lease.ts";
import type { Leases } from "../hold/leases.ts";
import type { Slot } from "../hold/slot.ts";
import type { Membership } from "../session/membership.ts";
import { LastSeen } from "./last-seen.ts";

export interface LeaseExpiryParts {
  readonly world: World;
  readonly store: Store;
  readonly membership: Membership;
  readonly leases: Leases;
  /** A slot may have lost its last lease. */
  readonly parkIfUnused: (slot: Slot) => void;
  /** Runs `expire` soon, in its loop. */
  readonly poke: () => void;
}

/** Leaves time for the look that began the wait to end. */
const DUE_MARGIN_MS = 50;

type Row = RemoteLease & { readonly leaseId: LeaseId };

export class LeaseExpiry {
  readonly #parts: LeaseExpiryParts;
  readonly #renewals = new LastSeen<LeaseId, string>();
  readonly #missing = new LastSeen<LeaseId, true>();
  /** When each lease ends without a renewal, on the monotonic clock. */
  readonly #due = new Map<LeaseId, number>();
  #timer: Timer | null = null;
  #timerAt = Number.POSITIVE_INFINITY;
  #closed = false;

  constructor(parts: LeaseExpiryParts) {
    this.#parts = parts;
  }

  /** A lease was renewed here. */
  renewed({ leaseId, record }: RemoteLeaseView): void {
    const row = record.leases[leaseId];
    if (row === undefined) return;
    const now = this.#parts.world.monotonicMs();
    this.#renewals.note(leaseId, beatOf(row), now);
    this.#wait(leaseId, now + row.ttlMs);
  }

  /** A lease was granted here: the next run of the loop sees its row for the first time. */
  granted(): void {
    this.#parts.poke();
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
  }

  async expire(): Promise<void> {
    const { world, store, membership } = this.#parts;
    if (!membership.mayJudge()) return;
    // A row that is written during the read is not missing in it.
    const settled = new Set(this.#remoteLeases().filter((lease) => !lease.isGranting()));
    const rows = rowsOf(await store.list({ leased: true }));
    const now = world.monotonicMs();
    const beats = rows.map((row) => [row.leaseId, beatOf(row)] as const);
    const unrenewedFor = this.#renewals.observe(beats, now, membership.sightSince());
    const present = new Map(rows.map(({ leaseId, generation }) => [leaseId, generation]));
    this.#due.clear();
    for (const row of rows) {
      const { leaseId, ttlMs } = row;
      const leftMs = ttlMs - (unrenewedFor.get(leaseId) ?? 0);
      if (leftMs > 0) this.#wait(leaseId, now + leftMs);
      else if (!membership.mayJudge()) return;
      else if (await store.expireLease(leaseId, row)) present.delete(leaseId);
    }
    await this.#noticeExpired(present, settled);
  }

  #wait(leaseId: LeaseId, until: number): void {
    this.#due.set(leaseId, until);
    if (until < this.#timerAt) this.#arm(until);
  }

  #arm(at: number): void {
    const { world } = this.#parts;
    this.#timer?.cancel();
    if (this.#closed) return;
    this.#timerAt = at;
    const delayMs = Math.max(0, at - world.monotonicMs()) + DUE_MARGIN_MS;
    this.#timer = world.timer(delayMs, () => this.#dueNow(), { background: true });
  }

  /** A renewed lease is due later: then nothing is read. */
  #dueNow(): void {
    const next = Math.min(...this.#due.values());
    this.#timerAt = Number.POSITIVE_INFINITY;
    if (next === Number.POSITIVE_INFINITY) return;
    if (next > this.#parts.world.monotonicMs()) this.#arm(next);
    else this.#parts.poke();
  }

  #remoteLeases(): readonly LeaseHandle[] {
    return [...this.#parts.leases.all()].filter(({ ttlMs }) => ttlMs !== null);
  }

  /** A row that went with its sandbox is no expiry: the loss of the sandbox is reported elsewhere. */
  async #hasNoRow({ id, slot }: LeaseHandle): Promise<boolean> {
    const record = await this.#parts.store.get(slot.sandboxId);
    return record?.state === "ready" && record.generation === slot.generation && !(id in record.leases);
  }

  /**
   * Ends leases of ours whose row is gone, and abandoned ones that have no row. A row that is present means that some
   * instance renews the lease, also while its sandbox is lost to us.
   */
  async #noticeExpired(present: ReadonlyMap<LeaseId, Generation>, settled: ReadonlySet<LeaseHandle>): Promise<void> {
    const { world, leases, membership, parkIfUnused } = this.#parts;
    const remote = this.#remoteLeases();
    // The grant took effect, but its response was lost.
    for (const lease of remote) if (present.get(lease.id) === lease.generation) lease.sawRow();
    const missing = remote.flatMap((lease) =>
      present.has(lease.id) || !settled.has(lease) ? [] : [[lease.id, true] as const],
    );
    const missingFor = this.#missing.observe(missing, world.monotonicMs(), membership.sightSince());
    for (const lease of remote) {
      const ttlMs = lease.ttlMs ?? 0;
      const hasRow = () => lease.isGranted() && !lease.slot.isLost();
      const isUnheardOf = () => Math.min(missingFor.get(lease.id) ?? 0, lease.unusedMs(world.monotonicMs())) >= ttlMs;
      const isForgotten = () => !hasRow() && !lease.isGranting() && isUnheardOf();
      const gone = hasRow() && !present.has(lease.id) && (await this.#hasNoRow(lease));
      // Checked again: the lease may have been released, lost or restarted during the store call.
      if (!lease.isReleased() && ((gone && hasRow()) || isForgotten())) parkIfUnused(leases.expire(lease, "expired"));
    }
  }
}

function rowsOf(records: readonly SandboxRecord[]): readonly Row[] {
  return records.flatMap(({ leases }) =>
    Object.entries<RemoteLease>(leases).map(([leaseId, lease]) => ({ ...lease, leaseId: leaseId as LeaseId })),
  );
}

/** A lease that was released and granted again begins with its first beat. */
function beatOf({ generation, acquiredAt, beat }: RemoteLease): string {
  return `${generation}.${acquiredAt}.${beat}`;
}
