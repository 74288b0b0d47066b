/** Evictions: which sandbox goes when a caller needs room. */

import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import { DRIFT_MARGIN } from "../process/host.ts";
import type { Instance } from "../process/instance.ts";
import type { StoreStep } from "../store/sim-store.ts";
import type { Findings } from "./findings.ts";
import { type HoldChecks, hasHolder } from "./hold-checks.ts";
import type { Truth } from "./truth.ts";

/** How old a store response may be when an instance acts on it. */
export const ROOM_DELAY_MS = 5_000;
/** How much earlier, by the store's clock, a sandbox must have been parked for the order to be certain. */
const EARLIER_MS = 6_000;
/** How long an instance waits for sandboxes to say whether they are busy. */
const ACTIVITY_PATIENCE_MS = 2_000;

export class EvictionChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;
  readonly #holds: HoldChecks;
  /** When a record was last removed. */
  #removedAt = Number.NEGATIVE_INFINITY;
  /** When each instance last asked for room: it evicts for the limit that was named then. */
  readonly #roomAskedAt = new Map<Instance, number>();

  constructor(truth: Truth, findings: Findings, holds: HoldChecks) {
    this.#truth = truth;
    this.#findings = findings;
    this.#holds = holds;
  }

  roomAsked(by: Instance): void {
    this.#roomAskedAt.set(by, this.#truth.now);
  }

  removed(): void {
    this.#removedAt = this.#truth.now;
  }

  /** A parked sandbox of a thread was evicted. */
  check(record: SandboxRecord, step: StoreStep): void {
    this.#checkBlanksFirst(record, step);
    this.#checkLongestParked(record, step);
  }

  #checkBlanksFirst(record: SandboxRecord, step: StoreStep): void {
    // A blank that existed well before the eviction decision, and that no instance tried to evict.
    const { tables } = this.#truth;
    const maxPerUser = this.#truth.userMax(record.user);
    // A blank makes no room under a user's own limit.
    const roomAskedAt = this.#roomAskedAt.get(step.by) ?? this.#truth.now;
    if (maxPerUser > 0 && this.#removedAt > Math.min(this.#truth.now - ROOM_DELAY_MS, roomAskedAt)) return;
    if (maxPerUser > 0 && tables.records().filter(({ user }) => user === record.user).length >= maxPerUser) return;
    const from = step.sentAt - 4 * this.#truth.settings.housekeepingIntervalMs;
    // A stop that was long in transit, or whose sender was paused, was decided from other counts.
    const { by, sentAt } = step;
    if (this.#truth.now - sentAt > 50 || by.process.resumedAt > from || by.wasFailed(from, sentAt)) return;
    const blank = tables
      .records()
      .find(
        (other) =>
          other.state === "ready" &&
          other.thread === null &&
          other.engine === record.engine &&
          !hasHolder(other) &&
          (this.#holds.parkedSince(other.sandboxId) ?? this.#truth.now) < from,
      );
    this.#findings.check(
      "blanks-go-first",
      blank === undefined,
      () => `${record.sandboxId} before blank ${blank?.sandboxId}`,
    );
  }

  /** Another sandbox of the same user, parked well before, with no work inside. */
  #checkLongestParked(record: SandboxRecord, { by, sentAt }: StoreStep): void {
    const { tables, now } = this.#truth;
    const parkedAt = this.#holds.parkedSince(record.sandboxId) ?? now;
    // A stop that was long in transit was decided from other counts.
    if (now - sentAt > 50) return;
    if (by.process.resumedAt > parkedAt || by.wasFailed(parkedAt, now)) return;
    const earlier = tables.records().find((other) => {
      if (other.state !== "ready" || other.user !== record.user || hasHolder(other)) return false;
      if (other.engine !== record.engine) return false;
      const since = this.#holds.parkedSince(other.sandboxId) ?? now;
      // A list that was read before the burial of its last holder did not show it.
      if ((this.#holds.shownParkedSince(other.sandboxId) ?? now) > now - ROOM_DELAY_MS) return false;
      const object = this.#truth.objectOf(other);
      const isIdle = object?.alive === true && object.busySince === null && object.idleSince <= since;
      if (wasSilent(by, other, sentAt) || !this.#truth.isClockSteadyBetween(since, parkedAt)) return false;
      return this.#truth.awakeMs(since, parkedAt) > EARLIER_MS && isIdle;
    });
    this.#findings.check(
      "longest-parked-goes-first",
      earlier === undefined,
      () => `${record.sandboxId}, parked since ${parkedAt}, before ${earlier?.sandboxId}`,
    );
  }
}

/** It was asked whether it is busy, and did not say so in time: then it counts as busy. */
function wasSilent(by: Instance, { ref }: SandboxRecord, sentAt: number): boolean {
  const asked = ref === null ? undefined : by.activityAsked.get(ref);
  if (asked === undefined || sentAt - asked.at > ACTIVITY_PATIENCE_MS + ROOM_DELAY_MS) return false;
  return asked.heardAt === null || asked.heardAt - asked.at >= ACTIVITY_PATIENCE_MS * (1 - DRIFT_MARGIN);
}
