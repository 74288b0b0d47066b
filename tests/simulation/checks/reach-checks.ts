/**
 * Several engines: which instance may touch which record, where a thread lives, and what callers of the wrong engine are
 * told. The truth here comes from who asked for a sandbox, never from the record itself.
 */

import { isSandlotError } from "@sandlot/contract";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import type { ClaimForRemovalRequest } from "../../../packages/fleet/src/store/store.ts";
import { DRIFT_MARGIN } from "../process/host.ts";
import type { Instance } from "../process/instance.ts";
import type { StoreStep } from "../store/sim-store.ts";
import type { Findings } from "./findings.ts";
import type { Asked } from "./lease-checks.ts";
import { ownerOf, type Truth } from "./truth.ts";

/** How long a thread without a home waits for another engine's recovery, in lifetimes of a session. */
const AWAITED_LIFETIMES = 4;
/** Steps that change only the holds and leases of a record, which any instance may end. */
const STORE_ONLY = new Set(["endDeadSession", "leave", "grantLease", "renewLease", "releaseLease", "expireLease"]);

export class ReachChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;

  constructor(truth: Truth, findings: Findings) {
    this.#truth = truth;
    this.#findings = findings;
  }

  put(before: SandboxRecord | null, after: SandboxRecord, step: StoreStep): void {
    if (!this.#truth.tables.isShared) return;
    const { engines } = this.#truth;
    const { sandboxId } = after;
    if (!engines.has(sandboxId)) engines.set(sandboxId, this.#engineOf(after) ?? step.by.engine);
    const engine = engines.get(sandboxId) ?? "";
    this.#findings.check(
      "record-names-its-engine",
      after.engine === engine && (before === null || before.engine === after.engine),
      () => `${sandboxId} is on ${engine}, and its record names ${after.engine}`,
    );
    this.#findings.check(
      "other-engines-untouched",
      step.by.engine === engine || (before?.state === after.state && STORE_ONLY.has(step.method)),
      () => `${step.method} of ${step.by.name} on ${step.by.engine} changed ${sandboxId} on ${engine}`,
    );
    if (before === null || before.thread === null) this.#checkHome(after, engine);
    if (after.state !== "creating") this.#settle(after, step);
  }

  deleted(before: SandboxRecord, step: StoreStep): void {
    if (!this.#truth.tables.isShared) return;
    const engine = this.#truth.engines.get(before.sandboxId) ?? "";
    this.#findings.check(
      "other-engines-untouched",
      step.by.engine === engine,
      () => `${step.by.name} on ${step.by.engine} removed ${before.sandboxId} on ${engine}`,
    );
    const owner = ownerOf(before);
    const isSettled = owner !== null && this.#truth.homes.get(owner)?.isSettled === true;
    // A thread that never had a sandbox may begin on any engine.
    if (owner !== null && (before.purge || !isSettled))
      this.#truth.homes.set(owner, { engine: null, at: this.#truth.now, isSettled: false });
  }

  /** The first records of threads are lost; where a thread had settled is kept. */
  emptied(): void {
    const { homes, now } = this.#truth;
    for (const [owner, { isSettled }] of [...homes])
      if (!isSettled) homes.set(owner, { engine: null, at: now, isSettled });
  }

  /** A sandbox of the thread was ready here, or was found in the engine after the store was lost. */
  #settle(after: SandboxRecord, { method, args }: StoreStep): void {
    const owner = ownerOf(after);
    const place = owner === null ? undefined : this.#truth.homes.get(owner);
    const isFound = method === "claimForRemoval" && (args[0] as ClaimForRemovalRequest).epoch !== undefined;
    if (owner === null || place === undefined || (after.state !== "ready" && !isFound)) return;
    this.#truth.homes.set(owner, { ...place, isSettled: true });
    const left = this.#truth.leaveBehind(owner, after.engine);
    if (left > 0) this.#findings.excepted("acknowledged-writes-stay", "home lost", () => `${left} of ${owner}`);
  }

  #checkHome(after: SandboxRecord, engine: string): void {
    const owner = ownerOf(after);
    if (owner === null || isNameless(owner)) return;
    const { homes, now } = this.#truth;
    const home = homes.get(owner)?.engine ?? null;
    this.#findings.check(
      "thread-stays-with-its-engine",
      home === null || home === engine,
      () => `${owner} lives on ${home}, and got ${after.sandboxId} on ${engine}`,
    );
    if (home === null) homes.set(owner, { engine, at: now, isSettled: false });
  }

  /** The engine that has the sandbox, if any has it. */
  #engineOf({ sandboxId }: SandboxRecord): string | null {
    for (const object of this.#truth.objectsOf(sandboxId)) return this.#truth.ledger.engineOf(object.ref);
    return null;
  }

  /** A caller was sent elsewhere, or told that no instance reaches the engine. */
  refused(error: unknown, asked: Asked): void {
    const since = asked.since ?? asked.at;
    const isSent = isSandlotError(error, "thread_elsewhere");
    if (!isSent && !isSandlotError(error, "engine_unreachable")) return;
    const { engine } = error.details;
    const gateways = isSent ? error.details.gateways : [];
    const { homes, reach, instances } = this.#truth;
    const home = homes.get(asked.owner ?? "");
    const isThere = home !== undefined && (home.engine === engine || home.at >= since);
    const { gainedAt, lostAt } = reach.get(engine) ?? { gainedAt: -1, lostAt: -1 };
    const isReached = this.#truth.reachable().has(engine);
    const wasSo = isSent ? isReached || lostAt >= since : !isReached || gainedAt >= since;
    const there = [...instances.values()].filter((instance) => instance.engine === engine).map(addressOf);
    this.#findings.check(
      "elsewhere-is-true",
      isThere && wasSo && engine !== asked.instance.engine && gateways.every((address) => there.includes(address)),
      () => `${asked.owner} lives on ${home?.engine}; ${asked.instance.name} on ${asked.instance.engine} says ${error}`,
    );
    if (isSent)
      this.#findings.check(
        "elsewhere-is-true",
        gateways.length > 0,
        () => `no gateway of ${engine} for ${asked.owner}`,
      );
  }

  /** An acquire was refused because the store recovers. */
  waited(error: unknown, { owner, instance, at: askedAt, since: at = askedAt }: Asked): void {
    const { emptiedAt, rewoundAt, recoveredAt, homes, tables, reach } = this.#truth;
    if (!tables.isShared || !isSandlotError(error, "store_recovering")) return;
    const { firstReachedAt, settings } = this.#truth;
    // Other engines have their time to recover. One that does not manage keeps no new thread waiting for ever.
    const onceMs = AWAITED_LIFETIMES * settings.sessionLifetimeMs * (1 + DRIFT_MARGIN) + this.#truth.clockLagMs;
    const { isClockSteady, storeClockSetAt } = this.#truth;
    const awaitedMs = isClockSteady ? onceMs : 2 * onceMs;
    // An instance that has not heard from the store since then still reckons with the former clock.
    const knowsClock = instance.beatConfirmedSentAt >= storeClockSetAt;
    const awaitedSince = (engine: string) => Math.max(firstReachedAt.get(engine) ?? at, storeClockSetAt);
    const wasRecovered = (engine: string) =>
      (recoveredAt.get(engine) ?? Number.POSITIVE_INFINITY) < at ||
      (home === null && engine !== instance.engine && this.#truth.awakeMs(awaitedSince(engine), at) > awaitedMs) ||
      (home === null && engine !== instance.engine && knowsClock && this.#awayFromFirstMs(engine, at) > onceMs);
    const home = owner === null || isNameless(owner) ? instance.engine : (homes.get(owner)?.engine ?? null);
    const isHomeNew = owner !== null && (homes.get(owner)?.at ?? 0) >= at;
    const lately = [...reach].flatMap(([engine, { lostAt }]) => (lostAt >= at ? [engine] : []));
    const waitsFor = home === null ? [...this.#truth.reachable(), ...lately] : [home];
    this.#findings.check(
      "recovery-is-of-one-engine",
      emptiedAt >= at || rewoundAt >= at || isHomeNew || !waitsFor.every(wasRecovered),
      () => `${owner} at ${instance.name} of ${instance.engine}, with its home ${home}`,
    );
  }

  /**
   * How far the store's clock has been, since `from`, from where it stood when an engine was first reached. A clock that
   * is set, forth or back, prolongs no wait: in either direction it goes no further than the wait is long.
   */
  #awayFromFirstMs(engine: string, from: number): number {
    const { firstReachedClock, tables, now } = this.#truth;
    const first = firstReachedClock.get(engine);
    if (first === undefined || !this.#truth.isClockSteadyBetween(from, now)) return 0;
    const clock = tables.now();
    return Math.max(first - clock, clock - (now - from) - first);
  }
}

/** An acquire joins the opening that another caller of its instance has begun. */
export function sinceOf(pending: Iterable<Asked>, { instance, owner, at }: Asked): number {
  const others = [...pending].filter((other) => other.instance === instance && other.owner === owner);
  return Math.min(at, ...others.map((other) => other.since ?? other.at));
}

/** The advertised address of an instance's gateway. */
export function addressOf({ name }: Instance): string {
  return `http://${name}`;
}

/** A thread without a name has no home. */
function isNameless(owner: string): boolean {
  return owner.includes("/~");
}
