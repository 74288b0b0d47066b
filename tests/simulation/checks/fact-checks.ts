/**
 * Events and leftovers of an instance: an event comes after its fact, a closed fleet has no timer and no watch, a
 * caller's signal has no listener left, and an anonymous thread leaves no workspace behind.
 */

import type { FleetEvent } from "@sandlot/contract";
import type { Instance } from "../process/instance.ts";
import type { Findings } from "./findings.ts";
import type { Truth } from "./truth.ts";

export class FactChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;

  constructor(truth: Truth, findings: Findings) {
    this.#truth = truth;
    this.#findings = findings;
  }

  /** An instance emitted an event. */
  told(instance: Instance, event: FleetEvent): void {
    if (event.type === "close-failed") instance.closeFailed = true;
    const known = this.#isFact(event);
    if (known !== null)
      this.#findings.check("events-follow-facts", known, () => `${instance.name} told ${JSON.stringify(event)}`);
  }

  /** `null`: a fact that the store does not record. */
  #isFact(event: FleetEvent): boolean | null {
    const { tables, published, owners, stoppedAt, emptiedAt } = this.#truth;
    // A lost store has forgotten the fact.
    if (emptiedAt > 0) return null;
    if (event.type === "sandbox-created" || event.type === "sandbox-adopted") return published.has(event.sandboxId);
    if (event.type === "sandbox-bound") return owners.has(event.sandboxId);
    if (event.type === "sandbox-stopping") return stoppedAt.has(event.sandboxId);
    if (event.type === "sandbox-stopped") return tables.tombstone(event.sandboxId) !== null;
    if (event.type === "instance-buried")
      return (this.#truth.instances.get(event.peer)?.sessionEndedAt ?? 0) > Number.NEGATIVE_INFINITY;
    return null;
  }

  /** A fleet has closed. */
  closed(instance: Instance, watches: number): void {
    // It reported that a close step took too long and was abandoned.
    if (instance.closeFailed) return;
    const timers = instance.world.timers;
    this.#findings.check(
      "nothing-runs-after-close",
      timers === 0 && watches === 0,
      () => `${instance.name} has ${timers} timers and ${watches} watches: ${instance.world.oldestTimer}`,
    );
  }

  /** A call settled: every listener on its caller's signal is removed. */
  answered(instance: Instance, listeners: number): void {
    this.#findings.check(
      "signals-are-let-go",
      listeners === 0,
      () => `${listeners} listeners on a caller's signal at ${instance.name}`,
    );
  }

  /** The run is quiet, and no caller waits. */
  idle(instance: Instance, watches: number): void {
    this.#findings.check("idle-watches-nothing", watches === 0, () => `${instance.name} has ${watches} watches`);
  }

  checkAnonymous(): void {
    const { ledger, tables, owners, ownedSince, emptiedAt } = this.#truth;
    const kept = new Set(tables.records().map(({ user, thread }) => `${user}/${thread}`));
    // After a store loss no record remains of a sandbox that was being ended, once the sandbox is gone.
    const known = new Set([...owners].flatMap(([id, owner]) => ((ownedSince.get(id) ?? 0) > emptiedAt ? [owner] : [])));
    const left = [...ledger.homes.keys()].filter(
      (owner) => owner.includes("/~") && !kept.has(owner) && (known.has(owner) || emptiedAt < 0),
    );
    this.#findings.check("anonymous-leaves-nothing", left.length === 0, () => left.join(", "));
  }

  /** A caller released ids that were never granted. */
  guessed(instance: Instance, released: boolean): void {
    this.#findings.check("guessed-ids-end-nothing", !released, () => `${instance.name} released a lease by its number`);
  }
}
