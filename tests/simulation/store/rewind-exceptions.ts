/**
 * What a store that may rewind does not promise, as `docs/decisions/store.md` states it. Everything else is a violation,
 * also during a failover.
 *
 *   failover ────── window ──────▶ new epoch ────── recovery of an engine ──────▶ promised again
 *
 * - Exclusivity has an exception from a failover that lost an acknowledged commit to the first commit of an instance
 *   that knew of it: that commit begins a new epoch.
 * - It covers the affected threads and sandboxes only: those with rows that were lost, or written in the window. What
 *   was begun in the window runs on until the engines of that thread have recovered in the new epoch.
 * - When no instance that knew of a lost commit lives, no new epoch begins. Then objects without a record go after their
 *   grace.
 * - A thread whose home was lost may begin on another engine. Its files stay on the former one. This ends when it has
 *   settled there: from then on everything acknowledged is promised again (`checks/lost-homes.ts`).
 * - A peer whose last beats were lost is as silent as the store says: whoever has seen the beat that is left for a
 *   lifetime ends its session. This ends with the next beat.
 * - A sandbox whose last use was lost is parked since the use before it, and may end as idle for that. This ends with the next hold.
 *
 * Every use is counted by invariant and clause.
 */

import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import type { Invariant } from "../checks/invariants.ts";
import { ownerOf, type Truth } from "../checks/truth.ts";
import { DRIFT_MARGIN } from "../process/host.ts";

/** Why a broken invariant is no violation. */
export type Clause = "in the window" | "until recovered" | "loss unnoticed" | "home lost" | "beats lost" | "use lost";

/** Exclusivity: the acts of two instances that each have a right which the store gave, and lost. */
const EXCLUSIVITY: ReadonlySet<Invariant> = new Set<Invariant>([
  "intent-first",
  "lease-is-held",
  "one-sandbox-per-thread",
  "stale-writes-nothing",
  "workspace-steps-by-right",
  "home-only-without-process",
  "purge-only-while-stopping",
  "rebind-follows-bind",
  "generation-never-repeats",
  "generation-grows-per-thread",
  "events-follow-facts",
  "destroy-is-honest",
  "destroyed-only-when-stopping",
  "remote-renewal-is-true",
]);

/** A thread that begins on another engine does not see its former files, and its purge does not reach them. */
const BEGUN_ELSEWHERE: ReadonlySet<Invariant> = new Set<Invariant>([
  "acknowledged-writes-stay",
  "purge-is-honest",
  "recovery-is-honest",
]);

interface Affected {
  readonly engines: Set<string>;
  /** When the epoch after the loss began; `null`: not yet. */
  epochAt: number | null;
  /** No instance could notice: when the orphans have gone. */
  until: number | null;
}

export class RewindExceptions {
  readonly #truth: Truth;
  readonly #affected = new Map<string, Affected>();

  constructor(truth: Truth) {
    this.#truth = truth;
  }

  /** The record was lost, or written in the window. */
  affect(record: SandboxRecord): void {
    const { sandboxId, generation, ref, engine, leases } = record;
    for (const name of [sandboxId, String(generation), ref, ownerOf(record), ...Object.keys(leases)])
      if (name !== null) this.#affectName(name, engine);
  }

  /** `present`: where the store says that it lives now. */
  homeLost(owner: string, engine: string, present: string | null): void {
    this.#truth.lostHomes.lost(owner, engine);
    this.#affectName(owner, engine);
    if (present !== null) this.#truth.leaveBehind(owner, present);
  }

  /** A new epoch begins, so the window is over. */
  epochBegan(): void {
    const { now } = this.#truth;
    for (const [name, one] of [...this.#affected]) {
      // What was excepted only until the orphans had gone is promised again, also in a later epoch.
      if (one.epochAt === null && one.until !== null && now >= one.until) this.#affected.delete(name);
      else one.epochAt ??= now;
    }
  }

  /** No living instance knows of the loss. */
  unnoticed(): void {
    const { orphanTimeoutMs, sessionLifetimeMs, housekeepingIntervalMs } = this.#truth.settings;
    // The grace of an object without a record, and the rounds until it is seen and gone.
    const until = this.#truth.now + orphanTimeoutMs + 2 * sessionLifetimeMs + 4 * housekeepingIntervalMs;
    for (const one of this.#affected.values()) if (one.epochAt === null) one.until ??= until;
  }

  /** `null`: the promise has no exception for this. */
  clauseFor(invariant: Invariant, detail: string): Clause | null {
    if (invariant === "bury-only-the-silent" && this.#isSilent(detail)) return "beats lost";
    if (invariant === "idle-only-after-timeout" && this.#isIdle(detail)) return "use lost";
    const { homes, lostHomes } = this.#truth;
    const owners = [...this.#affected.keys()].filter((name) => isNamed(detail, name));
    if (BEGUN_ELSEWHERE.has(invariant))
      for (const owner of owners) {
        const former = lostHomes.unsettled(owner);
        if (former !== null && homes.get(owner)?.engine !== former) return "home lost";
      }
    // A holder on the engine that its thread has left.
    if (invariant === "holders-come-back" && owners.some((owner) => lostHomes.hasMoved(owner))) {
      for (const owner of owners) if (this.#clauseOfName(owner) !== null) return "home lost";
    }
    if (!EXCLUSIVITY.has(invariant)) return null;
    let clause: Clause | null = null;
    for (const name of owners) clause = this.#clauseOfName(name) ?? clause;
    return clause;
  }

  /** Whether what a holder on the engine that its thread has left still writes stays there. */
  staysBehind(owner: string, engine: string): boolean {
    return this.#truth.lostHomes.wasLeft(owner, engine) && this.#clauseOfName(owner) !== null;
  }

  /** By the beat that the store is left with. */
  #isSilent(detail: string): boolean {
    const { instances, now, settings } = this.#truth;
    const lifetimeMs = settings.sessionLifetimeMs * (1 - DRIFT_MARGIN);
    return [...instances.values()].some(
      ({ name, beatKeptAt }) =>
        beatKeptAt !== null && isNamed(detail, `buried ${name}`) && now - beatKeptAt >= lifetimeMs,
    );
  }

  /** By the time that the store is left with. */
  #isIdle(detail: string): boolean {
    const { parkedAtKept, settings } = this.#truth;
    const timeoutMs = settings.idleTimeoutMs * (1 - DRIFT_MARGIN);
    return [...parkedAtKept].some(([id, at]) => isNamed(detail, id) && this.#truth.awakeMs(at) >= timeoutMs);
  }

  #clauseOfName(name: string): Clause | null {
    const one = this.#affected.get(name);
    return one === undefined ? null : this.#clauseOf(one);
  }

  #clauseOf({ engines, epochAt, until }: Affected): Clause | null {
    const { now, recoveredAt } = this.#truth;
    if (epochAt !== null) {
      const isRecovered = [...engines].every((engine) => (recoveredAt.get(engine) ?? -1) > epochAt);
      return isRecovered ? null : "until recovered";
    }
    if (until === null) return "in the window";
    return now < until ? "loss unnoticed" : null;
  }

  #affectName(name: string, engine: string): void {
    const before = this.#affected.get(name);
    const engines = new Set([...(before?.engines ?? []), engine]);
    this.#affected.set(name, { engines, epochAt: null, until: null });
  }
}

/** As a whole word: `e1-3` is not `e1-31`. */
function isNamed(detail: string, name: string): boolean {
  const at = detail.indexOf(name);
  return at >= 0 && !/[\w-]/.test(detail[at + name.length] ?? "");
}
