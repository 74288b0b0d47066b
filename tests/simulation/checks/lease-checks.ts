/** Leases, losses, results and errors that callers get, compared with the truth at that moment. */

import { isSandlotError, type LossReason } from "@sandlot/contract";
import { DRIFT_MARGIN } from "../process/host.ts";
import type { Instance } from "../process/instance.ts";
import type { Findings } from "./findings.ts";
import { ReachChecks } from "./reach-checks.ts";
import { type HeldLease, ownerOf, type RemoteTruth, type Truth } from "./truth.ts";

/** Allowed errors of an acquire; any other error means an internal failure. */
const REFUSALS: ReadonlySet<string> = new Set([
  "capacity_exhausted",
  "acquire_timeout",
  "create_failed",
  "sandbox_unreachable",
  "sandbox_expired",
  "sandbox_lost",
  "store_unavailable",
  "store_recovering",
  "thread_elsewhere",
  "engine_unreachable",
]);

/** Further allowed errors of a lease use. */
const USE_ERRORS: ReadonlySet<string> = new Set([...REFUSALS, "stale_generation", "lease_released", "fleet_closed"]);

/** Longest time of one store response, with room for a retry. */
const STORE_PATIENCE_MS = 4_000;

export interface Asked {
  readonly instance: Instance;
  readonly owner: string | null;
  /** The requested blueprint; `null`: the thread's present one. */
  readonly blueprint?: string | null;
  readonly at: number;
  /** When the opening began that it joined; absent: it joined none. */
  readonly since?: number;
  readonly pausedMs: number;
  readonly timeoutMs: number;
}

export class LeaseChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;
  readonly #reach: ReachChecks;

  constructor(truth: Truth, findings: Findings) {
    this.#truth = truth;
    this.#findings = findings;
    this.#reach = new ReachChecks(truth, findings);
  }

  acquired(held: HeldLease, asked: Asked): void {
    const { instance, sandboxId, generation } = held;
    this.#checkHeld(held);
    const owner = this.#truth.owners.get(sandboxId) ?? null;
    this.#findings.check(
      "lease-on-own-thread",
      asked.owner === null ? owner?.includes("~") === true : owner === asked.owner,
      () => `${instance.name} asked for ${asked.owner}, got ${sandboxId} of ${owner}`,
    );
    this.#checkLifetime(held, asked);
    this.#checkRecovery(held, asked);
    if (owner !== null) {
      const thread = this.#truth.thread(owner);
      const engine = this.#truth.tables.record(sandboxId)?.engine ?? thread.latestEngine;
      // After a loss a purged thread may begin on another engine, where no fence knows its earlier generations.
      const isMoved = this.#truth.emptiedAt > 0 && engine !== thread.latestEngine;
      thread.latestLeased = isMoved ? generation : Math.max(thread.latestLeased, generation);
      thread.latestEngine = engine;
      this.#truth.leased.add(held.sandboxId);
    }
    this.checkOneSandbox(held);
  }

  /** Two working leases of one thread must be on one sandbox. */
  checkOneSandbox(held: HeldLease): void {
    if (held.owner === null || !this.#truth.isUsable(held)) return;
    for (const other of this.#truth.leases) {
      if (other.owner !== held.owner || other === held || !this.#truth.isUsable(other)) continue;
      const same = other.sandboxId === held.sandboxId && other.generation === held.generation;
      this.#findings.check(
        "one-sandbox-per-thread",
        same,
        () => `${held.owner}: ${held.sandboxId} at ${held.instance.name}, ${other.sandboxId} at ${other.instance.name}`,
      );
    }
  }

  #checkHeld(held: HeldLease): void {
    const { instance, sandboxId, generation } = held;
    const { settings, emptiedAt, tables } = this.#truth;
    if (this.#truth.hasHold(instance, sandboxId, generation) && tables.record(sandboxId)?.state === "ready") {
      this.#findings.check("lease-is-held", true, () => "");
      return;
    }
    // Losses not reported yet: only forced ends by a peer, or a store loss, since the last renewal.
    const { beatConfirmedSentAt } = instance;
    const recent = instance.host.awakeMs(beatConfirmedSentAt) * (1 - DRIFT_MARGIN) <= settings.sessionLifetimeMs / 2;
    // A heartbeat cannot confirm a hold whose grant arrived after the heartbeat was sent.
    const heardAt = instance.holdsHeardAt.get(`${sandboxId} ${generation}`) ?? Number.NEGATIVE_INFINITY;
    const asked = heardAt < beatConfirmedSentAt;
    const stoppedAt = this.#truth.stoppedAt.get(sandboxId) ?? Number.NEGATIVE_INFINITY;
    // By its own clock: a frozen instance cannot know.
    const youngMs = settings.sessionLifetimeMs / 2 / (1 - DRIFT_MARGIN);
    const stopped = asked ? stoppedAt >= beatConfirmedSentAt : instance.host.awakeMs(stoppedAt, heardAt) <= youngMs;
    // An instance needs no report of its own stops.
    const untold = !instance.stopped.has(sandboxId) && (stopped || emptiedAt >= beatConfirmedSentAt);
    this.#findings.check(
      "lease-is-held",
      recent && untold,
      () =>
        `${instance.name} gave a lease on ${sandboxId} ${generation}; record ${JSON.stringify(tables.record(sandboxId))}`,
    );
  }

  #checkLifetime(held: HeldLease, asked: Asked): void {
    const { settings, tables } = this.#truth;
    const record = tables.record(held.sandboxId);
    if (settings.maxLifetimeMs === 0 || record === null || !this.#truth.isClockSteady) return;
    const ageMs = this.#truth.awakeMs(this.#truth.fromStoreClock(record.createdAt), asked.at);
    this.#findings.check(
      "no-lease-after-lifetime",
      ageMs <= settings.maxLifetimeMs + STORE_PATIENCE_MS,
      () => `${held.sandboxId} was ${ageMs} ms old when it was asked for`,
    );
  }

  #checkRecovery(held: HeldLease, asked: Asked): void {
    if (asked.owner === null) return;
    const thread = this.#truth.thread(asked.owner);
    if (held.generation <= thread.latestLeased) return;
    const before = [...thread.acknowledged.values()].filter((at) => at < asked.at).length;
    const { kind } = held.lease.recovery;
    this.#findings.check(
      "recovery-is-honest",
      kind !== "empty" || before === 0,
      () => `${asked.owner}: ${kind} with ${before} acknowledged writes`,
    );
  }

  refused(error: unknown, asked: Asked, aborted: unknown): void {
    this.#reach.refused(error, asked);
    this.#reach.waited(error, asked);
    const code = isSandlotError(error) ? error.code : "";
    const closed = code === "fleet_closed" && asked.instance.closing;
    const named = REFUSALS.has(code) || closed || (aborted !== null && error === aborted) || this.#isOther(code, asked);
    this.#findings.check("errors-are-named", named, () => `acquire at ${asked.instance.name}: ${String(error)}`);
    if (isSandlotError(error, "capacity_exhausted")) {
      const { leased, parked, blank, creating, stopping, queued } = error.details;
      const least = Math.min(leased, parked, blank, creating, stopping, queued);
      this.#findings.check("counts-are-never-negative", least >= 0, () => JSON.stringify(error.details));
    }
  }

  /** A thread that had a sandbox of another blueprint may still have it. */
  #isOther(code: string, { owner, blueprint = null }: Asked): boolean {
    if (code !== "blueprint_mismatch" || owner === null || blueprint === null) return false;
    const wanted = this.#truth.settings.blueprints[blueprint]?.hash;
    const isOther = [...this.#truth.thread(owner).blueprints].some((hash) => hash !== wanted);
    this.#findings.check("blueprint-is-as-asked", isOther, () => `${owner} has never had another than ${blueprint}`);
    return true;
  }

  checkBlueprint({ sandboxId }: HeldLease, wanted: string): void {
    const hash = this.#truth.settings.blueprints[wanted]?.hash;
    const objects = [...this.#truth.objectsOf(sandboxId)];
    this.#findings.check(
      "blueprint-is-as-asked",
      objects.every(({ labels }) => labels.blueprintHash === hash),
      () => `a lease for ${wanted} is on ${sandboxId}, which is of another`,
    );
  }

  acquireSettled(asked: Asked): void {
    const took = this.#took(asked);
    this.#findings.check(
      "acquire-settles-in-time",
      took <= asked.timeoutMs + STORE_PATIENCE_MS,
      () => `${took} ms of ${asked.timeoutMs} for ${asked.owner} at ${asked.instance.name}`,
    );
  }

  answered(kind: "destroy" | "release" | "close", asked: Asked): void {
    const invariant = (
      { destroy: "destroy-answers-in-time", release: "release-answers-in-time", close: "close-ends-in-time" } as const
    )[kind];
    const took = this.#took(asked);
    this.#findings.check(
      invariant,
      took <= asked.timeoutMs,
      () => `${took} ms of ${asked.timeoutMs} at ${asked.instance.name}`,
    );
  }

  /** A destroy returned `absent` or `stopped`: the sandbox present at the request is gone. */
  destroyed(asked: Asked, outcome: string): void {
    const { owners, ownedSince, published, ledger } = this.#truth;
    if (outcome === "stopping" || asked.owner === null) return;
    // A store lost during the request knows nothing, and the caller could not know of the loss.
    if (this.#truth.isBlind(asked)) return;
    const { latestLeased } = this.#truth.thread(asked.owner);
    const left = [...ledger.objects.values()].find(({ labels: { sandboxId }, alive, generation }) => {
      const since = ownedSince.get(sandboxId) ?? asked.at;
      // A sandbox that was never leased may turn out to have no owner.
      if (!alive || since >= asked.at || generation !== latestLeased) return false;
      return published.has(sandboxId) && owners.get(sandboxId) === asked.owner;
    });
    this.#findings.check(
      "destroy-is-honest",
      left === undefined,
      () => `${asked.instance.name} says ${outcome} of ${asked.owner}, and ${left?.ref} is there`,
    );
  }

  /** A purge returned: every write acknowledged before the request is gone everywhere. */
  purged(asked: Asked, outcome: string): void {
    const { ledger } = this.#truth;
    if (outcome === "stopping" || asked.owner === null) return;
    if (this.#truth.isBlind(asked)) return;
    const { acknowledged, latestLeased } = this.#truth.thread(asked.owner);
    // A create that landed late has used the workspace since. The purge spares its writes and sets them aside for an
    // operator.
    if ((ledger.fences.get(asked.owner) ?? 0) > latestLeased) return;
    const present = new Set(ledger.homes.get(asked.owner)?.tokens ?? []);
    const left = [...acknowledged].filter(([token, at]) => at < asked.at && present.has(token));
    this.#findings.check(
      "purge-is-honest",
      left.length === 0,
      () => `${asked.instance.name} says ${outcome} of ${asked.owner}, and ${left.join(", ")} is there`,
    );
  }

  #took(asked: Asked): number {
    return this.#truth.now - asked.at - (asked.instance.process.pausedMs - asked.pausedMs);
  }

  releaseFailed(held: HeldLease, error: unknown): void {
    this.#findings.check("release-answers-in-time", false, () => `${held.instance.name}: ${String(error)}`);
  }

  /** A lease reported that its sandbox is lost. */
  lost(held: HeldLease, reason: LossReason): void {
    const { sandboxId, generation, instance } = held;
    const alive = this.#lives(held);
    const thread = held.owner === null ? null : this.#truth.thread(held.owner);
    const remote = this.#truth.remotes.get(held.lease.id);
    const right =
      reason === "crashed"
        ? !alive
        : reason === "destroyed" || reason === "restored"
          ? thread?.destroyAsked === true
          : reason === "session-lost"
            ? instance.closing || !this.#truth.hasHold(instance, sandboxId, generation)
            : reason === "expired"
              ? remote === undefined || remote.releaseAsked || this.#isUnheardOf(remote)
              : false;
    this.#findings.check(
      "loss-is-true",
      right,
      () => `${instance.name} lost ${sandboxId} ${generation}: ${reason}, alive ${alive}`,
    );
    this.#checkComeBack(held, reason, alive);
    if (reason === "session-lost" && alive && !instance.closing) this.#checkTakenAgain(held);
    this.#findings.check("nobody-is-superseded", reason !== "superseded", () => `${instance.name} lost ${sandboxId}`);
  }

  /** The sandbox is ready and alive in the same generation, so the hold could have been taken again. */
  #checkTakenAgain({ instance, sandboxId, generation }: HeldLease): void {
    const record = this.#truth.tables.record(sandboxId);
    const isThere = record?.state === "ready" && record.generation === generation;
    // The store was lost in between and could not respond.
    const { emptiedAt, now, settings } = this.#truth;
    if (now - emptiedAt < settings.sessionLifetimeMs) return;
    this.#findings.check(
      "hold-is-taken-again",
      !isThere,
      () => `${instance.name} gave up ${sandboxId}, which is there`,
    );
  }

  /**
   * No instance granted or renewed it within its time to live, or its row was lost with the store since. A row removed
   * with its sandbox proves nothing about renewals elsewhere; then the time counts from the removal.
   */
  #isUnheardOf({ heardAt, ttlMs, goneAt, ended }: RemoteTruth): boolean {
    const { now, emptiedAt } = this.#truth;
    const since = ended && goneAt !== null ? Math.max(heardAt, goneAt) : heardAt;
    return now - since >= ttlMs * (1 - DRIFT_MARGIN) || emptiedAt >= heardAt;
  }

  /** After a store loss, a running holder with access to the store restores its holds. */
  #checkComeBack(held: HeldLease, reason: LossReason, alive: boolean): void {
    const { emptiedAt, now, settings, tables, ledger } = this.#truth;
    const { instance, sandboxId, owner } = held;
    if (reason !== "session-lost" || !alive || instance.closing || instance.sessionEndedAt >= held.since) return;
    const healthy = instance.hasReachedStore(emptiedAt, settings.sessionLifetimeMs / 2, now);
    if (emptiedAt < held.since || now - emptiedAt >= settings.sessionLifetimeMs || !healthy) return;
    // A create that landed late has used the workspace since: the sandbox is outdated, and the fence says so.
    if (owner !== null && (ledger.fences.get(owner) ?? 0) > held.generation) return;
    const claimed = tables.records().some((record) => record.sandboxId === sandboxId || ownerOf(record) === owner);
    this.#findings.check("holders-come-back", claimed, () => `${instance.name} gave up ${sandboxId} of ${owner}`);
  }

  /** The result of a use. `expected` is the lease's own state at the time of use. */
  used(held: HeldLease, error: unknown, expected: { released: boolean; stale: boolean; lost: boolean }): void {
    const { instance } = held;
    const code = isSandlotError(error) ? error.code : error === null ? null : "unnamed";
    // Ended at another instance, or expired: this instance may not have noticed yet.
    if (held.isRowOver) return;
    if (expected.released) {
      this.#findings.check("released-means-over", code === "lease_released", () => `${instance.name}: ${code}`);
      return;
    }
    if (expected.stale) {
      const refused = code !== null && code !== "store_unavailable";
      this.#findings.check(
        "write-is-of-its-generation",
        refused,
        () => `${instance.name}: a stale object answered ${code}`,
      );
      return;
    }
    const { autoRestart } = this.#truth.settings;
    if (expected.lost && !autoRestart) {
      this.#findings.check("no-restart-when-off", code !== null, () => `${instance.name}: a lost lease was used`);
    }
    if (code !== null) {
      const named = USE_ERRORS.has(code) || (code === "blueprint_mismatch" && this.#livesOnAnother(held));
      this.#findings.check("errors-are-named", named, () => `use at ${instance.name}: ${String(error)}`);
    }
    if (!expected.lost && this.#lives(held)) {
      const untroubled = held.active && !held.interrupted && !instance.closing && held.lost === null;
      const failed = code !== null && code !== "sandbox_unreachable" && untroubled;
      this.#findings.check("held-keeps-working", !failed, () => `${instance.name}: ${held.lease.id} ${code}`);
    }
  }

  /** Its sandbox is gone, and its thread may have another blueprint now: a lease does not restart on that. */
  #livesOnAnother(held: HeldLease): boolean {
    const { owner } = held;
    return !this.#lives(held) && owner !== null && this.#truth.thread(owner).blueprints.size > 1;
  }

  #lives(held: HeldLease): boolean {
    for (const { alive, generation } of this.#truth.objectsOf(held.sandboxId)) {
      if (alive && generation === held.generation) return true;
    }
    return false;
  }

  /** Compares a read with the writes acknowledged before it began and not purged since. */
  read(held: HeldLease, shown: { owner: string | null; tokens: readonly string[] }, before: readonly string[]): void {
    if (held.owner === null) return;
    const { owner } = held;
    this.#findings.check(
      "workspace-is-own",
      shown.owner === owner,
      () => `${owner} was shown the workspace of ${shown.owner}`,
    );
    const present = new Set(shown.tokens);
    const { acknowledged } = this.#truth.thread(owner);
    const missing = before.filter((token) => acknowledged.has(token) && !present.has(token));
    this.#findings.check(
      "acknowledged-writes-stay",
      missing.length === 0,
      () => `${owner} at ${held.instance.name}, generation ${held.generation}, misses ${missing.join(", ")}`,
    );
  }
}
