/** Holds and remote leases: who takes them, who may end them, and since when a sandbox is parked. */

import type { InstanceId, LeaseId, SandboxId } from "@sandlot/contract";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import { DRIFT_MARGIN } from "../process/host.ts";
import type { StoreStep } from "../store/sim-store.ts";
import type { Findings } from "./findings.ts";
import { ownerOf, type Truth } from "./truth.ts";

const FRESH = { releaseAsked: false, ended: false, goneAt: null };
/** Steps that take a hold. */
const TAKING = new Set(["hold", "take", "publish", "bind", "restore"]);

/** When a holder left, and how far ahead the clock may have been by which that was written. */
interface Left {
  readonly at: number;
  readonly leadMs: number;
  /** When the store was told. */
  readonly toldAt: number;
}

const NEVER: Left = { at: Number.NEGATIVE_INFINITY, leadMs: 0, toldAt: Number.NEGATIVE_INFINITY };

export class HoldChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;
  /** When each parked sandbox was truly parked. */
  readonly #parkedSince = new Map<SandboxId, Left>();
  /** When a holder that left others behind was gone. */
  readonly #leftSince = new Map<SandboxId, Left>();
  /** The holds that the present epoch has given or had back, by holder, sandbox and generation. */
  readonly #given = new Set<string>();

  constructor(truth: Truth, findings: Findings) {
    this.#truth = truth;
    this.#findings = findings;
  }

  parkedSince(sandboxId: SandboxId): number | undefined {
    return this.#parkedSince.get(sandboxId)?.at;
  }

  /** Since when the store shows it as parked. A dead holder may have left long before. */
  shownParkedSince(sandboxId: SandboxId): number | undefined {
    return this.#parkedSince.get(sandboxId)?.toldAt;
  }

  put(before: SandboxRecord | null, after: SandboxRecord, step: StoreStep): void {
    for (const id of Object.keys(after.holders) as InstanceId[]) this.#checkTaken(id, before, after, step);
    for (const id of Object.keys(before?.holders ?? {}) as InstanceId[]) {
      if (before !== null && after.holders[id] === undefined) this.#checkDropped(id, before, after, step);
    }
    this.#checkLeases(before, after, step);
    this.#checkParking(before, after, step);
  }

  /** The store's response reached the caller. */
  answered({ by, method }: StoreStep, result: unknown): void {
    if (!TAKING.has(method) || result === null) return;
    const record = method === "publish" ? (result as SandboxRecord) : (result as { record?: SandboxRecord }).record;
    const hold = record?.holders[by.id];
    // This step only takes a hold that the store has forgotten.
    if (method === "hold" && hold !== undefined) this.#findings.check("hold-is-taken-again", true, () => "");
    if (record !== undefined && hold !== undefined)
      by.holdsHeardAt.set(`${record.sandboxId} ${hold.generation}`, this.#truth.now);
  }

  emptied(): void {
    this.#parkedSince.clear();
    this.#leftSince.clear();
    this.#given.clear();
    for (const held of this.#truth.leases) held.interrupted = true;
    // Only the store has a remote lease; its holders may or may not restore it.
    for (const remote of this.#truth.remotes.values()) remote.ended = true;
  }

  #checkTaken(id: InstanceId, before: SandboxRecord | null, after: SandboxRecord, step: StoreStep): void {
    const hold = after.holders[id];
    const old = before?.holders[id];
    if (hold === undefined || (old !== undefined && old.generation === hold.generation && old.seq === hold.seq)) return;
    const { tables } = this.#truth;
    const right =
      TAKING.has(step.method) &&
      id === step.by.id &&
      tables.session(id) !== null &&
      hold.generation === after.generation &&
      after.state === "ready" &&
      (old === undefined || hold.seq >= old.seq);
    this.#findings.check("hold-is-takers-own", right, () => `${id} by ${step.method} of ${step.by.name}`);
    if (step.method === "hold" || step.method === "take") this.#findings.moved("hold");
    if (step.method === "restore" && before !== null) this.#findings.moved("hold (restore)");
    if (step.method === "restore") this.#findings.check("holders-come-back", true, () => "");
    // A hold that this epoch has known is not new: its session has ended since, and its instance takes it again.
    const given = `${id} ${after.sandboxId} ${hold.generation}`;
    const isAgain = step.method === "restore" || (step.method === "hold" && this.#given.has(given));
    const recovering = tables.isRecovering(after.engine) && !isAgain;
    this.#given.add(given);
    // The one exception: a sandbox that was being created before the store loss has no record to publish.
    this.#findings.check("nothing-new-while-recovering", !recovering, () => `${step.method} of ${step.by.name}`);
    for (const held of this.#truth.leases) {
      if (held.instance.id === id && held.sandboxId === after.sandboxId && held.generation === after.generation) {
        held.interrupted = false;
      }
    }
  }

  #checkDropped(id: InstanceId, before: SandboxRecord, after: SandboxRecord, step: StoreStep): void {
    const { method } = step;
    if (method === "unhold") this.#findings.moved("unhold");
    if (method === "beat") this.#findings.moved("heal");
    const ended = (method === "endDeadSession" || method === "leave") && step.args[0] === id;
    // Another check judges the stop itself.
    const stopped = after.state === "stopping";
    let inUse = false;
    if (method === "unhold" || method === "beat") {
      for (const held of this.#truth.activeLeases(before.sandboxId, before.generation)) {
        if (held.instance.id === id && this.#truth.isUsable(held) && !held.instance.closing) inUse = true;
      }
    }
    const own = (method === "unhold" || method === "beat") && step.by.id === id && !inUse;
    this.#findings.check(
      "hold-dropped-only-by-its-owner",
      ended || stopped || own,
      () => `${id} lost its hold of ${before.sandboxId} by ${method} of ${step.by.name}${inUse ? " while leased" : ""}`,
    );
  }

  #checkLeases(before: SandboxRecord | null, after: SandboxRecord, step: StoreStep): void {
    const { remotes } = this.#truth;
    for (const [key, lease] of Object.entries(after.leases)) {
      const id = key as LeaseId;
      const old = before?.leases[id];
      const renewed = step.method === "renewLease" && step.args[0] === id;
      if (old !== undefined && !renewed) continue;
      if (step.method !== "restore") this.#findings.moved(old === undefined ? "grant" : "renew");
      const remote = remotes.get(id);
      if (remote !== undefined) {
        // A hold restored after a store loss keeps its age.
        if (step.method !== "restore") remote.heardAt = this.#truth.now;
        if (remote.ended) remote.since = this.#truth.now;
        remote.ended = false;
      } else {
        const { ttlMs } = lease;
        const { now } = this.#truth;
        remotes.set(id, { leaseId: id, ttlMs, since: now, heardAt: now, ...FRESH });
      }
    }
    for (const id of Object.keys(before?.leases ?? {}) as LeaseId[]) {
      if (after.leases[id] === undefined) this.#checkLeaseEnded(id, after, step);
    }
  }

  #checkLeaseEnded(id: LeaseId, after: SandboxRecord, step: StoreStep): void {
    const remote = this.#truth.remotes.get(id);
    if (remote === undefined) return;
    if (step.method === "releaseLease") this.#findings.moved("release-lease");
    if (step.method === "expireLease") this.#findings.moved("expire-lease");
    const silentMs = this.#truth.now - remote.heardAt;
    const right =
      after.state === "stopping" ||
      (step.method === "releaseLease" && (remote.releaseAsked || !this.#wasHandedOut(id))) ||
      (step.method === "expireLease" && silentMs >= remote.ttlMs * (1 - DRIFT_MARGIN));
    this.#findings.check(
      "remote-lease-ends-in-time",
      right,
      () => `${id} by ${step.method} of ${step.by.name}, ${silentMs} of ${remote.ttlMs} ms after it was heard of`,
    );
    remote.ended = true;
    if (after.state === "stopping") remote.goneAt = this.#truth.now;
  }

  /** The fleet itself releases a lease whose caller left before the grant. */
  #wasHandedOut(id: LeaseId): boolean {
    for (const held of this.#truth.leases) if (held.lease.id === id && held.active) return true;
    return false;
  }

  #checkParking(before: SandboxRecord | null, after: SandboxRecord, step: StoreStep): void {
    const { now } = this.#truth;
    const { sandboxId } = after;
    if (after.state !== "ready") return;
    const wasHeld = before?.state === "ready" && hasHolder(before);
    const buried = step.method === "endDeadSession" ? this.#truth.instances.get(step.args[0] as InstanceId) : undefined;
    if (!wasHeld) this.#leftSince.delete(sandboxId);
    const earlier = this.#leftSince.get(sandboxId) ?? NEVER;
    const left: Left = {
      at: Math.max(buried?.heardAt ?? now, earlier.at),
      leadMs: Math.max(this.#truth.clockLeadMs(step), earlier.leadMs),
      toldAt: now,
    };
    if (hasHolder(after)) {
      this.#parkedSince.delete(sandboxId);
      this.#truth.parkedAtKept.delete(sandboxId);
      if (wasHeld && holderCount(after) < holderCount(before)) this.#leftSince.set(sandboxId, left);
      return;
    }
    if (before === null || before.state !== "ready" || wasHeld) this.#parkedSince.set(sandboxId, left);
    const since = this.#parkedSince.get(sandboxId);
    if (ownerOf(after) === null || since === undefined) return;
    const claimed = after.parkedAt === null ? Number.NaN : this.#truth.fromStoreClock(after.parkedAt);
    const earlyMs = this.#truth.awakeMs(claimed, since.at);
    const leadMs = Math.max(this.#truth.clockLeadMs(step), since.leadMs);
    if (!this.#truth.isClockSteady) return;
    this.#findings.check(
      "parked-since-is-true",
      // The store's clock is read in whole milliseconds, and far from it with an error of a short round trip.
      earlyMs > (this.#truth.clockLagMs > 0 ? -10 : -2) - leadMs && earlyMs < 2 + this.#truth.clockLagMs,
      () => `${sandboxId} parked at ${since.at}, the record says ${claimed}, by ${step.method}`,
    );
  }
}

export function hasHolder(record: SandboxRecord): boolean {
  return holderCount(record) > 0;
}

function holderCount({ holders, leases }: SandboxRecord): number {
  return Object.keys(holders).length + Object.keys(leases).length;
}
