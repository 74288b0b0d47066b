/**
 * What callers are given and told: leases, losses, answers and errors, compared with the truth at that moment.
 */

import { isSandlotError, type LossReason } from "@sandlot/contract";
import { DRIFT_MARGIN } from "../process/host.ts";
import type { Instance } from "../process/instance.ts";
import type { Findings } from "./findings.ts";
import { type HeldLease, ownerOf, type RemoteTruth, type Truth } from "./truth.ts";

/** What an acquire may be refused with; everything else means that something inside went wrong. */
const REFUSALS: ReadonlySet<string> = new Set([
  "capacity_exhausted",
  "acquire_timeout",
  "create_failed",
  "sandbox_unreachable",
  "sandbox_expired",
  "sandbox_lost",
  "store_unavailable",
  "store_recovering",
]);

/** What a use of a lease may fail with besides these. */
const USE_ERRORS: ReadonlySet<string> = new Set([...REFUSALS, "stale_generation", "lease_released", "fleet_closed"]);

/** Longest that one answer of the store takes, with room for a retry. */
const STORE_PATIENCE_MS = 4_000;

export interface Asked {
  readonly instance: Instance;
  readonly owner: string | null;
  /** The blueprint that was asked for; `null`: whatever the thread has. */
  readonly blueprint?: string | null;
  readonly at: number;
  readonly pausedMs: number;
  readonly timeoutMs: number;
}

export class LeaseChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;

  constructor(truth: Truth, findings: Findings) {
    this.#truth = truth;
    this.#findings = findings;
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
      thread.latestLeased = Math.max(thread.latestLeased, generation);
      this.#truth.leased.add(held.sandboxId);
    }
    this.checkOneSandbox(held);
  }

  /** Two leases of one thread that both work must be on one sandbox. */
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
    // Not told yet: only what a peer did by force, or the loss of the store, since the last renewal.
    const { beatConfirmedSentAt } = instance;
    const recent = instance.host.awakeMs(beatConfirmedSentAt) * (1 - DRIFT_MARGIN) <= settings.sessionLifetimeMs / 2;
    // A hold that was heard of after the last beat was sent, that beat could not ask about.
    const heardAt = instance.holdsHeardAt.get(`${sandboxId} ${generation}`) ?? Number.NEGATIVE_INFINITY;
    const asked = heardAt < beatConfirmedSentAt;
    const stoppedAt = this.#truth.stoppedAt.get(sandboxId) ?? Number.NEGATIVE_INFINITY;
    // By its own clock: one that was frozen meanwhile cannot know.
    const youngMs = settings.sessionLifetimeMs / 2 / (1 - DRIFT_MARGIN);
    const stopped = asked ? stoppedAt >= beatConfirmedSentAt : instance.host.awakeMs(stoppedAt, heardAt) <= youngMs;
    // What it has stopped itself it need not be told.
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
    if (settings.maxLifetimeMs === 0 || record === null) return;
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

  /** A thread that has had a sandbox of another blueprint may have it still. */
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

  /** A destroy was answered with `absent`, or `stopped`: what was there when it was asked is there no more. */
  destroyed(asked: Asked, outcome: string): void {
    const { owners, ownedSince, published, ledger } = this.#truth;
    if (outcome === "stopping" || asked.owner === null) return;
    // A store that was lost while it was asked knows nothing, and whoever asked it could not know that.
    if (this.#truth.isBlind(asked)) return;
    const { latestLeased } = this.#truth.thread(asked.owner);
    const left = [...ledger.objects.values()].find(({ labels: { sandboxId }, alive, generation }) => {
      const since = ownedSince.get(sandboxId) ?? asked.at;
      // What nobody ever had a lease on may be nobody's in the end.
      if (!alive || since >= asked.at || generation !== latestLeased) return false;
      return published.has(sandboxId) && owners.get(sandboxId) === asked.owner;
    });
    this.#findings.check(
      "destroy-is-honest",
      left === undefined,
      () => `${asked.instance.name} says ${outcome} of ${asked.owner}, and ${left?.ref} is there`,
    );
  }

  /** A purge was answered: what had been acknowledged before it was asked for is nowhere any more. */
  purged(asked: Asked, outcome: string): void {
    const { ledger } = this.#truth;
    if (outcome === "stopping" || asked.owner === null) return;
    if (this.#truth.isBlind(asked)) return;
    const { acknowledged, latestLeased } = this.#truth.thread(asked.owner);
    // A create that landed late has used the workspace since: what it keeps from the purge is set aside for a person.
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

  /** A lease was told that its sandbox is gone. */
  lost(held: HeldLease, reason: LossReason): void {
    const { sandboxId, generation, instance } = held;
    const alive = this.#lives(held);
    const thread = held.owner === null ? null : this.#truth.thread(held.owner);
    const remote = this.#truth.remotes.get(held.lease.id);
    const right =
      reason === "crashed"
        ? !alive
        : reason === "destroyed"
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

  /** It is there, ready and alive, in the same generation: then the hold could have been taken again. */
  #checkTakenAgain({ instance, sandboxId, generation }: HeldLease): void {
    const record = this.#truth.tables.record(sandboxId);
    const isThere = record?.state === "ready" && record.generation === generation;
    // A store that was lost in between could not be asked.
    const { emptiedAt, now, settings } = this.#truth;
    if (now - emptiedAt < settings.sessionLifetimeMs) return;
    this.#findings.check(
      "hold-is-taken-again",
      !isThere,
      () => `${instance.name} gave up ${sandboxId}, which is there`,
    );
  }

  /**
   * Neither granted nor renewed for its time, at whichever instance; or its row was lost with the store since. A row that
   * went with its sandbox says nothing of renewals elsewhere: then its time counts from there.
   */
  #isUnheardOf({ heardAt, ttlMs, goneAt, ended }: RemoteTruth): boolean {
    const { now, emptiedAt } = this.#truth;
    const since = ended && goneAt !== null ? Math.max(heardAt, goneAt) : heardAt;
    return now - since >= ttlMs * (1 - DRIFT_MARGIN) || emptiedAt >= heardAt;
  }

  /** After the store was lost, a holder that runs and reaches it puts back what it holds. */
  #checkComeBack(held: HeldLease, reason: LossReason, alive: boolean): void {
    const { emptiedAt, now, settings, tables, ledger } = this.#truth;
    const { instance, sandboxId, owner } = held;
    if (reason !== "session-lost" || !alive || instance.closing || instance.sessionEndedAt >= held.since) return;
    const healthy = instance.hasReachedStore(emptiedAt, settings.sessionLifetimeMs / 2, now);
    if (emptiedAt < held.since || now - emptiedAt >= settings.sessionLifetimeMs || !healthy) return;
    // A create that landed late has used the workspace since: then the sandbox is outdated, and the fence says so.
    if (owner !== null && (ledger.fences.get(owner) ?? 0) > held.generation) return;
    const claimed = tables.records().some((record) => record.sandboxId === sandboxId || ownerOf(record) === owner);
    this.#findings.check("holders-come-back", claimed, () => `${instance.name} gave up ${sandboxId} of ${owner}`);
  }

  /** The answer of a use. `expected` is what the lease said about itself when it was used. */
  used(held: HeldLease, error: unknown, expected: { released: boolean; stale: boolean; lost: boolean }): void {
    const { instance } = held;
    const code = isSandlotError(error) ? error.code : error === null ? null : "unnamed";
    // Ended at another instance, or run out: this one may or may not have noticed.
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

  /** Its sandbox is gone, and its thread may have one of another blueprint now: a lease is not restarted on that. */
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

  /** What a read showed, against what had been acknowledged before it began and was not purged since. */
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
