/**
 * Ending: which sandbox may be stopped, for which reason, which instance takes over, what is claimed for removal or
 * adopted, and when a record goes.
 */

import type { InstanceId, LeaseId } from "@sandlot/contract";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import type { AdoptRequest, StopAnswer, StopRequest } from "../../../packages/fleet/src/store/store.ts";
import { DRIFT_MARGIN } from "../process/host.ts";
import type { StoreStep } from "../store/sim-store.ts";
import { EvictionChecks, ROOM_DELAY_MS } from "./eviction-checks.ts";
import type { Findings } from "./findings.ts";
import type { HoldChecks } from "./hold-checks.ts";
import { ownerOf, type Truth } from "./truth.ts";

/**
 * How far an instance's estimate of the store's clock may be off: as long as a renewal takes, which after a pause is a
 * heartbeat and a registration. An instance must end a sandbox as soon as it may have reached the maximum lifetime;
 * otherwise it could lease it past that age.
 */
const STORE_DELAY_MS = 6_400;

export class StopChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;
  readonly #holds: HoldChecks;
  readonly #evictions: EvictionChecks;
  /** When a record was last removed. */
  #removedAt = Number.NEGATIVE_INFINITY;

  constructor(truth: Truth, findings: Findings, holds: HoldChecks) {
    this.#truth = truth;
    this.#findings = findings;
    this.#holds = holds;
    this.#evictions = new EvictionChecks(truth, findings, holds);
  }

  asked({ by, method }: StoreStep): void {
    if (method === "reserve" || method === "take" || method === "bind") this.#evictions.roomAsked(by);
  }

  put(before: SandboxRecord | null, after: SandboxRecord, step: StoreStep): void {
    if (before === null) this.#truth.recordedAt.set(after.sandboxId, this.#truth.now);
    if (step.method === "adopt") this.#checkAdoption(step);
    if (step.method === "claimForRemoval") this.#checkCondemned(after, step);
    if (step.method === "takeOver" && before !== null) this.#checkTakeOver(before, step);
    if (after.state === "stopping" && before?.state !== "stopping")
      this.#truth.stoppedAt.set(after.sandboxId, this.#truth.now);
    if (before?.state === "ready" && after.state === "stopping") this.#checkStop(before, after, step);
    if (after.purge && before?.purge !== true) this.#checkPurgeAsked(after);
    if (step.method === "reserve" || step.method === "take" || step.method === "bind") {
      const recovering = this.#truth.tables.isRecovering(after.engine);
      this.#findings.check("nothing-new-while-recovering", !recovering, () => `${step.method} of ${step.by.name}`);
    }
  }

  /** The store's response reached the caller. */
  answered({ by, method, sentAt }: StoreStep, result: unknown): void {
    if (method !== "stop" || sentAt <= this.#truth.emptiedAt) return;
    const answer = result as StopAnswer;
    if (answer.kind === "stopping") by.stopped.add(answer.record.sandboxId);
  }

  deleted(before: SandboxRecord, step: StoreStep): void {
    const { ledger } = this.#truth;
    const home = this.#truth.ledgerOf(before);
    const { sandboxId } = before;
    this.#findings.moved("stopping→absent");
    this.#removedAt = this.#truth.now;
    this.#evictions.removed();
    this.#findings.check("only-allowed-moves", before.state === "stopping", () => `${before.state}→absent`);
    this.#findings.check(
      "removed-by-its-actor",
      step.method === "remove" && before.actor === step.by.id,
      () => `${sandboxId} of ${before.actor} was removed by ${step.by.id}`,
    );
    // An abandoned create may land between the last look and the removal; the orphan checks judge it.
    const stoppedAt = this.#truth.stoppedAt.get(sandboxId) ?? this.#truth.now;
    const objects = [...this.#truth.objectsOf(sandboxId)];
    const late = objects.some(({ landedAt }) => landedAt >= stoppedAt);
    const left: string[] = objects.filter(({ landedAt }) => landedAt < stoppedAt).map(({ ref }) => ref);
    for (const [place, slot] of ledger.slots) if (slot.sandboxId === sandboxId && !late) left.push(place);
    if (ledger.markers.has(sandboxId) && !late) left.push("markers");
    this.#findings.check(
      "leaves-when-nothing-is-left",
      left.length === 0,
      () => `${sandboxId} left ${left.join(", ")}`,
    );
    const owner = ownerOf(before);
    if (!before.purge || owner === null) return;
    // A later generation has used the workspace, or one with the same number, which a lost store may give twice.
    const { user, thread, generation } = before;
    const isFenced =
      user !== null && thread !== null && home.isStale({ user, thread, sandboxId, generation, place: "home" });
    // The late sandbox may have ended by then; its home still exists, and is empty.
    const cameLate = [...ledger.departed.values()].some(
      ({ object }) => object.labels.sandboxId === sandboxId && object.landedAt >= stoppedAt,
    );
    const gone = isFenced || !home.homes.has(owner) || late || cameLate;
    this.#findings.check("purged-when-it-leaves", gone, () => `${owner} still has a home`);
  }

  #checkStop(before: SandboxRecord, after: SandboxRecord, step: StoreStep): void {
    const request = step.args[0] as StopRequest;
    const mode = request.mode.kind;
    const object = this.#truth.objectOf(before);
    const owner = ownerOf(before);
    const dead = object?.alive !== true;
    const unreachable = object !== undefined && !this.#answersTo(before, object);
    if (mode === "dead") {
      this.#findings.check(
        "dead-is-dead",
        dead || unreachable,
        () => `${before.sandboxId} lives, ${step.by.name} stopped it`,
      );
    }
    const forced = mode === "force" && owner !== null && this.#truth.thread(owner).forcedBy.has(step.by.name);
    if (mode === "force") {
      this.#findings.check("forced-only-when-asked", forced, () => `${step.by.name} forced ${before.sandboxId}`);
    }
    const holders = this.#liveHolders(before);
    const allowed = holders.length === 0 || forced || (mode === "dead" && (dead || unreachable));
    this.#findings.check(
      "held-is-not-stopped",
      allowed,
      () => `${step.by.name} stopped ${before.sandboxId} (${mode}, ${request.reason}) held by ${holders.join(", ")}`,
    );
    // Until holders had their time to return, a sandbox cannot be called unheld.
    const early = mode === "unheld" && this.#truth.tables.isRecovering(before.engine);
    this.#findings.check(
      "nothing-new-while-recovering",
      !early,
      () => `${step.by.name} stopped ${before.sandboxId} as unheld`,
    );
    if (mode === "force") this.#rememberForced(before);
    this.#checkReason(before, after, step, dead || unreachable);
  }

  #answersTo(record: SandboxRecord, daemon: { generation: number; token: string }): boolean {
    const { generation, token, boundFrom } = record;
    if (daemon.generation === generation && daemon.token === token) return true;
    return boundFrom !== null && daemon.generation === boundFrom.generation && daemon.token === boundFrom.token;
  }

  #liveHolders(record: SandboxRecord): string[] {
    const { tables, remotes } = this.#truth;
    const holders: string[] = [];
    for (const id of Object.keys(record.holders) as InstanceId[]) if (tables.session(id) !== null) holders.push(id);
    for (const id of Object.keys(record.leases) as LeaseId[])
      if (this.#truth.unexpired(remotes.get(id))) holders.push(id);
    return holders;
  }

  #rememberForced(record: SandboxRecord): void {
    this.#truth.forcedStops.add(record.sandboxId);
    // An earlier crash keeps its own reason.
    if (this.#truth.objectOf(record)?.alive !== true) return;
    for (const held of this.#truth.activeLeases(record.sandboxId, record.generation)) {
      if (!held.interrupted && record.holders[held.instance.id] !== undefined)
        held.forced ??= { at: this.#truth.now, pausedMs: held.instance.process.pausedMs };
    }
  }

  #checkReason(before: SandboxRecord, after: SandboxRecord, step: StoreStep, dead: boolean): void {
    const { settings } = this.#truth;
    const owner = ownerOf(before);
    const anonymous = before.thread?.startsWith("~") === true;
    const { reason } = after;
    const right =
      reason === "idle"
        ? owner !== null
        : reason === "expired"
          ? settings.maxLifetimeMs > 0
          : reason === "crashed"
            ? dead
            : reason === "destroyed" || reason === "restored"
              ? owner !== null && this.#truth.thread(owner).destroyAsked
              : reason === "released"
                ? anonymous
                : reason === "surplus" || reason === "stale-blueprint"
                  ? owner === null
                  : reason === "shutdown"
                    ? step.by.closing
                    : reason === "create-abandoned"
                      ? owner !== null && this.#isUnused(owner, before)
                      : reason === "evicted";
    this.#findings.check("stop-reason-is-true", right, () => `${before.sandboxId} of ${owner}: ${reason}`);
    if (reason === "idle") this.#checkDoubt(before, step);
    if (reason === "idle" && this.#truth.isClockSteady) this.#checkIdle(before, step);
    if (reason === "expired" && this.#truth.isClockSteady) this.#checkExpired(before);
    if (reason === "evicted") {
      const { waitingAcquires, waitedAt } = step.by;
      // The caller that needed the room may have given up while the decision was in transit.
      const needed = waitingAcquires > 0 || step.sentAt <= waitedAt;
      this.#findings.check("evicted-only-when-needed", needed, () => `${before.sandboxId} by ${step.by.name}`);
    }
    if (reason === "evicted" && owner !== null) this.#evictions.check(before, step);
  }

  /** After a store loss a thread may get a generation that it has already passed: its workspace refuses it. */
  #isUnused(owner: string, { sandboxId, generation }: SandboxRecord): boolean {
    const { latestLeased } = this.#truth.thread(owner);
    return latestLeased < generation || !this.#truth.leased.has(sandboxId);
  }

  #checkIdle(record: SandboxRecord, step: StoreStep): void {
    const { now, settings } = this.#truth;
    const { sandboxId } = record;
    // An instance learns with its next heartbeat that the store's machine slept. After a longer silence it judges
    // nothing.
    const trustedSince = step.sentAt - (settings.sessionLifetimeMs / 2) * (1 + DRIFT_MARGIN);
    const parkedSince = this.#holds.parkedSince(sandboxId) ?? now;
    const heardAt = Math.max(step.by.beatConfirmedSentAt, trustedSince, parkedSince);
    const unheardMs = now - heardAt - this.#truth.awakeMs(heardAt);
    const parkedMs = this.#truth.awakeMs(parkedSince) + unheardMs + this.#truth.clockLagMs;
    this.#findings.check(
      "idle-only-after-timeout",
      settings.idleTimeoutMs > 0 && parkedMs >= settings.idleTimeoutMs * (1 - DRIFT_MARGIN),
      () => `${sandboxId} was parked for ${parkedMs} of ${settings.idleTimeoutMs} ms`,
    );
    const busySince = this.#truth.objectOf(record)?.busySince ?? null;
    // The reaper could not see work that began while it was deciding, or while its machine stood: the engine goes on
    // meanwhile, and a frozen machine finds all its clocks as they were.
    const workedMs = busySince === null ? 0 : step.by.host.awakeMs(busySince, step.sentAt);
    const seen = workedMs > 2 * settings.housekeepingIntervalMs;
    const age = this.#truth.awakeMs(this.#truth.fromStoreClock(record.createdAt));
    const overdue = settings.maxLifetimeMs > 0 && age >= settings.maxLifetimeMs;
    this.#findings.check("idle-not-while-busy", !seen || overdue, () => `${sandboxId} was busy since ${busySince}`);
  }

  /** By the clock of the instance that judges. */
  #checkDoubt({ sandboxId }: SandboxRecord, { by, sentAt }: StoreStep): void {
    const lifetimeMs = this.#truth.settings.sessionLifetimeMs * (1 - DRIFT_MARGIN);
    const { doubtedAt } = by;
    this.#findings.check(
      "idle-only-without-doubt",
      doubtedAt <= sentAt - lifetimeMs || doubtedAt > sentAt,
      () => `${by.name} ended ${sandboxId} at ${sentAt}; it had to doubt itself at ${doubtedAt}`,
    );
  }

  #checkExpired(record: SandboxRecord): void {
    const { now, settings } = this.#truth;
    // An adopted sandbox has a young record; an instance that held it before knows its real age.
    const madeAt = this.#truth.objectOf(record)?.landedAt ?? now;
    const age = this.#truth.awakeMs(Math.min(madeAt, this.#truth.fromStoreClock(record.createdAt)));
    this.#findings.check(
      "expired-only-after-lifetime",
      age >= settings.maxLifetimeMs - STORE_DELAY_MS,
      () => `${record.sandboxId} lived for ${age} of ${settings.maxLifetimeMs} ms`,
    );
  }

  #checkTakeOver(before: SandboxRecord, step: StoreStep): void {
    const { actor } = before;
    const gone = actor !== null && this.#truth.tables.session(actor) === null;
    const isOwnStop = actor === step.by.id && before.state === "stopping";
    this.#findings.check(
      "takeover-only-from-the-dead",
      gone || isOwnStop,
      () => `${step.by.name} took ${before.sandboxId} from ${actor}`,
    );
  }

  #checkPurgeAsked(after: SandboxRecord): void {
    const owner = ownerOf(after);
    const asked =
      owner !== null && (this.#truth.thread(owner).purgeAskedAt >= 0 || after.thread?.startsWith("~") === true);
    this.#findings.check("purge-only-when-asked", asked, () => `${after.sandboxId} of ${owner}`);
  }

  #checkAdoption(step: StoreStep): void {
    const request = step.args[0] as AdoptRequest;
    const { sandboxId, generation, token, ref, user, thread, place } = request;
    const { markers, objects, departed } = this.#truth.ledger;
    // An earlier destroy may take effect after the daemon has responded: then the confirmed sandbox has died since, as
    // any sandbox can.
    const gone = departed.get(ref);
    const wasThere = gone !== undefined && gone.at >= (step.by.attachedAt.get(ref) ?? step.sentAt);
    const marker = (wasThere ? gone.markers : markers.get(sandboxId))?.get(generation);
    const object = wasThere ? gone.object : objects.get(ref);
    const proved = marker !== undefined && marker.user === user && marker.thread === thread && marker.token === token;
    const confirmed =
      object !== undefined &&
      object.labels.sandboxId === sandboxId &&
      object.place === place &&
      (!object.alive || (object.generation === generation && object.token === token));
    this.#findings.check(
      "adopted-through-marker",
      proved && confirmed,
      () => `${sandboxId} as ${user}/${thread} ${generation}: marker ${proved}, daemon ${object?.generation}`,
    );
  }

  #checkCondemned(after: SandboxRecord, step: StoreStep): void {
    const { now, settings, tables, ledger } = this.#truth;
    const { sandboxId } = after;
    const objects = [...this.#truth.objectsOf(sandboxId)];
    const own = objects.every(({ madeBy }) => madeBy === step.by.name);
    const graceMs = settings.orphanTimeoutMs * (1 - DRIFT_MARGIN);
    const past = objects.every(({ landedAt }) => now - landedAt >= graceMs);
    const superseded = objects.every((object) => this.#isSuperseded(object.ref, step));
    // Holders have one session lifetime to return; unclaimed sandboxes are sorted out before recovery ends. Several
    // instances may sort at once, and one may finish a little after the end of recovery.
    const sinceLoss = now - Math.max(0, this.#truth.emptiedAt);
    const waited = sinceLoss >= settings.sessionLifetimeMs * (1 - DRIFT_MARGIN);
    const sorting = waited && sinceLoss < 3 * settings.sessionLifetimeMs;
    const recovering = tables.isRecovering(after.engine);
    this.#findings.check(
      "condemned-only-unknown",
      own || superseded || tables.tombstone(sandboxId) !== null || (recovering ? waited : past || sorting),
      () => `${sandboxId} by ${step.by.name}: past its grace ${past}, recovering ${recovering}`,
    );
    // A sandbox that was ended on purpose, and lands again, is not adopted.
    if (own || superseded || tables.tombstone(sandboxId) !== null) return;
    // A sandbox that was never ready is the late landing of an abandoned create.
    if (!this.#truth.published.has(sandboxId)) return;
    // Room freed a moment ago could not be counted.
    if (now - this.#removedAt < ROOM_DELAY_MS) return;
    const provable = objects.find((object) => {
      const marker = ledger.markers.get(sandboxId)?.get(object.generation);
      if (!object.alive || marker === undefined || marker.token !== object.token) return false;
      // A later generation has used the workspace: this one's content is outdated.
      const { fences } = this.#truth.ledgerOf(after);
      if ((fences.get(`${marker.user}/${marker.thread}`) ?? 0) > object.generation) return false;
      if (this.#truth.isElsewhere(`${marker.user}/${marker.thread}`, after.engine)) return false;
      // So has one that was given up on another engine: the store knows only that it was later.
      if ((tables.tombstoneOf(marker.user, marker.thread)?.generation ?? 0) > object.generation) return false;
      return tables.recordOf(marker.user, marker.thread) === null && this.#hasRoom(marker.user, after.engine);
    });
    // The check judges before the step; the thread may have become free only since.
    const aged = provable !== undefined && now - provable.landedAt >= 2 * settings.orphanTimeoutMs;
    this.#findings.check("condemned-not-adoptable", !aged, () => `${sandboxId} by ${step.by.name}`);
  }

  /** A later generation of its thread exists, so this one is outdated and goes at once. */
  #isSuperseded(ref: string, _step: StoreStep): boolean {
    for (const object of this.#truth.ledger.objects.values()) {
      if (object.ref !== ref) continue;
      const marker = this.#truth.ledger.markers.get(object.labels.sandboxId)?.get(object.generation);
      const record = marker === undefined ? null : this.#truth.tables.recordOf(marker.user, marker.thread);
      return record !== null && record.generation > object.generation;
    }
    return true;
  }

  #hasRoom(user: string, engine: string): boolean {
    const { limits } = this.#truth.settings;
    if (limits.mode === "soft") return true;
    const records = this.#truth.tables.records();
    if (records.length >= limits.max || !this.#truth.hasRoomOn(engine)) return false;
    const userMax = this.#truth.userMax(user);
    return userMax === 0 || records.filter((record) => record.user === user).length < userMax;
  }
}
