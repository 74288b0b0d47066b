/** Sessions: which dead session ends, by which peer, and how long recovery lasts (rules 6, 7, 12). */

import type { BeatAnswer, Session } from "../../../packages/fleet/src/store/store.ts";
import { DRIFT_MARGIN } from "../process/host.ts";
import type { Instance } from "../process/instance.ts";
import type { StoreStep } from "../store/sim-store.ts";
import type { Findings } from "./findings.ts";
import type { Truth } from "./truth.ts";

/** Smaller differences between the clocks are drift, not jumps. */
const CLOCK_JUMP_MS = 1_000;
/** The error of an instance that reads the store's clock, besides the travel of its answer, and of drift. */
const CLOCK_READING_MS = 50;

export class SessionChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;
  /** Between the store's clock and the sender's monotonic one, when each heartbeat was sent. */
  readonly #offsets = new WeakMap<StoreStep, number>();

  constructor(truth: Truth, findings: Findings) {
    this.#truth = truth;
    this.#findings = findings;
  }

  put(before: Session | null, after: Session): void {
    const { firstReachedAt, firstReachedClock, now, tables } = this.#truth;
    for (const engine of after.engines) {
      this.#noteReach(engine, true);
      if (firstReachedAt.has(engine)) continue;
      firstReachedAt.set(engine, now);
      firstReachedClock.set(engine, tables.now());
    }
    const instance = this.#truth.instances.get(after.instance);
    if (instance === undefined) return;
    if (before === null) {
      instance.sessionSince = this.#truth.now;
      this.#findings.moved("register");
    }
    // One that was lost and sent again is the beat that its peers may have seen before.
    const landedAt = instance.beatsLanded.get(after.beat) ?? this.#truth.now;
    instance.beatLandedAt = landedAt;
    instance.beatKeptAt = null;
    instance.beatsLanded.set(after.beat, landedAt);
  }

  deleted(before: Session, step: StoreStep): void {
    for (const engine of before.engines) {
      const others = this.#truth.tables.sessions().filter(({ instance }) => instance !== before.instance);
      this.#noteReach(
        engine,
        others.some(({ engines }) => engines.includes(engine)),
      );
    }
    const peer = this.#truth.instances.get(before.instance);
    if (peer === undefined) return;
    peer.sessionSince = null;
    peer.sessionEndedAt = this.#truth.now;
    for (const held of this.#truth.leases) if (held.instance === peer) held.interrupted = true;
    if (step.method === "leave") this.#findings.moved("leave");
    if (step.method !== "endDeadSession") return;
    this.#findings.moved("endDeadSession");
    this.#checkBurial(peer, step);
  }

  /** The store's response reached the caller. */
  answered(step: StoreStep, result: unknown): void {
    this.#ended(step);
    if (step.method !== "beat") return;
    const { by, sentAt } = step;
    const lifetimeMs = this.#truth.settings.sessionLifetimeMs;
    if (by.host.awakeMs(by.beatConfirmedSentAt, sentAt) > lifetimeMs / 2) this.#breakSight(by, sentAt);
    // A clock that jumped forth and back between two heartbeats is undetectable.
    if (Math.abs(step.skewMs - by.beatSkewMs) > CLOCK_JUMP_MS) this.#doubt(by, sentAt);
    by.beatSkewMs = step.skewMs;
    if ((result as BeatAnswer).kind === "ok") by.beatConfirmedSentAt = Math.max(by.beatConfirmedSentAt, sentAt);
    else this.#doubt(by, this.#truth.now);
    this.#compareClocks(step, result as BeatAnswer);
  }

  /** A jump against the store's clock between two heartbeats shows that one of the two hosts stood, or set its clock. */
  #compareClocks(step: StoreStep, { kind }: BeatAnswer): void {
    const { by, sentAt } = step;
    const before = by.beatStoreOffset;
    const sentMs = this.#offsets.get(step);
    // A response that was long in transit hides as much.
    const errorMs = this.#truth.now - sentAt;
    by.beatStoreOffset = kind === "ok" ? { ms: this.#storeOffsetMs(by), errorMs } : null;
    if (before === null || sentMs === undefined || kind !== "ok") return;
    const jumpMs = Math.abs(sentMs - before.ms) - before.errorMs - errorMs;
    // It learns of the jump with the answer.
    if (jumpMs > CLOCK_JUMP_MS + CLOCK_READING_MS) this.#doubt(by, this.#truth.now);
  }

  #breakSight(by: Instance, at: number): void {
    by.sightBrokenAt = at;
    by.sightBrokenTurn = this.#truth.scheduler.events;
  }

  #doubt(by: Instance, at: number): void {
    this.#breakSight(by, at);
    // Whoever begins has nothing to doubt yet.
    if (by.beatConfirmedSentAt > Number.NEGATIVE_INFINITY) by.doubtedAt = at;
  }

  #storeOffsetMs(by: Instance): number {
    return this.#truth.tables.now() - by.host.monotonicMs();
  }

  asked(step: StoreStep): void {
    const { by, sentAt, method } = step;
    by.unanswered.push(sentAt);
    if (method === "beat") this.#offsets.set(step, this.#storeOffsetMs(by));
  }

  #ended({ by, sentAt }: StoreStep): void {
    by.unanswered.splice(by.unanswered.indexOf(sentAt), 1);
    const { now, settings } = this.#truth;
    if (now - sentAt >= settings.sessionLifetimeMs / 2) by.storeLateAt = now;
  }

  failed(step: StoreStep): void {
    this.#ended(step);
    step.by.storeFailedAt = this.#truth.now;
    step.by.storeFailures.push({ at: this.#truth.now, turn: this.#truth.scheduler.events });
  }

  recoveryEnded(engine: string, step: StoreStep | null): void {
    this.#findings.moved("end-recovery");
    const { now, ledger, settings } = this.#truth;
    this.#truth.recoveredAt.set(engine, now);
    this.#checkComeBack(engine);
    let objects = 0;
    // An engine object that lands during the request stays unseen.
    const seenUntil = (step?.sentAt ?? now) - 1_000;
    for (const { labels, landedAt } of ledger.of(engine).objects.values()) {
      if (labels.fleet === settings.fleetId && landedAt < seenUntil) objects += 1;
    }
    const lasted = now - this.#truth.recoveringSince;
    // What a request of before the loss makes after that look has no holder, and no wait is long enough for it.
    const { recoveringSince, rewoundAt } = this.#truth;
    const sawNothing = (step?.by.sawNothingAt ?? -1) >= Math.max(recoveringSince, rewoundAt);
    this.#findings.check(
      "recovery-lasts-a-lifetime",
      lasted >= settings.sessionLifetimeMs * (1 - DRIFT_MARGIN) || objects === 0 || sawNothing,
      () => `it lasted ${lasted} ms, with ${objects} objects in the engine`,
    );
  }

  /** A holder with constant access to the store restores its holds before the store serves others. */
  #checkComeBack(engine: string): void {
    const { emptiedAt, now, settings } = this.#truth;
    if (now - emptiedAt < settings.sessionLifetimeMs) return;
    for (const held of this.#truth.leases) {
      const { instance, sandboxId, generation } = held;
      const healthy = instance.hasReachedStore(emptiedAt, settings.sessionLifetimeMs / 2, now);
      if (instance.engine !== engine) continue;
      if (!held.active || held.since >= emptiedAt || instance.closing || !healthy) continue;
      const living = [...this.#truth.objectsOf(sandboxId)].some((object) => object.alive);
      if (!living || this.#truth.forcedStops.has(sandboxId)) continue;
      this.#findings.check(
        "holders-come-back",
        this.#truth.hasHold(instance, sandboxId, generation),
        () => `${instance.name} has not put back ${sandboxId} of ${held.owner}`,
      );
    }
  }

  emptied(): void {
    this.#truth.recoveringSince = this.#truth.now;
    this.#truth.emptiedAt = this.#truth.now;
    this.#truth.recoveredAt.clear();
    this.#truth.firstReachedAt.clear();
    this.#truth.firstReachedClock.clear();
    for (const engine of this.#truth.reach.keys()) this.#noteReach(engine, false);
    for (const instance of this.#truth.instances.values()) {
      instance.sessionSince = null;
      // A stopped sandbox that still lands, or lives on, may be adopted by a store that has no record of it.
      instance.stopped.clear();
      instance.pausedMsAtLoss = instance.process.pausedMs;
      this.#breakSight(instance, this.#truth.now);
      instance.beatKeptAt = null;
    }
  }

  /** Called with every session that begins or ends, before the row changes. */
  #noteReach(engine: string, isReached: boolean): void {
    const { now, reach } = this.#truth;
    const known = reach.get(engine) ?? { gainedAt: Number.NEGATIVE_INFINITY, lostAt: Number.NEGATIVE_INFINITY };
    const wasReached = known.gainedAt > known.lostAt || this.#truth.reachable().has(engine);
    if (isReached && !wasReached) known.gainedAt = now;
    if (!isReached) known.lostAt = now;
    reach.set(engine, known);
  }

  #checkBurial(peer: Instance, step: StoreStep): void {
    const { by, sentAt } = step;
    // By the clock of the ending peer.
    const lifetimeMs = this.#truth.settings.sessionLifetimeMs * (1 - DRIFT_MARGIN);
    // The host knows at once that a local process is dead; then no observation through the store is needed.
    const known = by.toldDead.has(peer.id);
    const silentMs = this.#truth.now - peer.beatLandedAt;
    this.#findings.check(
      "bury-only-the-silent",
      (known && !peer.process.alive) || silentMs >= lifetimeMs,
      () => `${by.name} buried ${peer.name} after ${silentMs} ms (${known ? "told dead" : "not told dead"})`,
    );
    if (known) return;
    const { sightBrokenAt, sightBrokenTurn } = by;
    // What reaches it in the millisecond of the burial may come after the decision: the order of the events tells.
    const { turn } = step;
    const broken = sightBrokenAt > sentAt - lifetimeMs && sightBrokenAt <= sentAt && sightBrokenTurn < turn;
    const failed = by.wasFailed(sentAt - lifetimeMs, sentAt, turn);
    this.#findings.check(
      "bury-only-with-sight",
      !broken && !failed,
      () =>
        `${by.name} buried ${peer.name} at ${sentAt}; its sight broke at ${sightBrokenAt}, the store failed it: ${failed}`,
    );
  }
}
