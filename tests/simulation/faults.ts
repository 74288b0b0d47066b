/**
 * The kinds of faults, and their rates in a run. Each run turns some kinds off and some up (swarm testing): a bug that
 * needs two rare faults together is found by runs in which both are common and the rest is quiet.
 *
 * Every kind has a name that is counted when it fires; a kind that almost never fires proves nothing and fails a run of
 * many seeds.
 */

import type { Random } from "./schedule/random.ts";

export const FAULT_KINDS = [
  // The engine.
  "create-slow",
  "create-failed",
  "create-failed-after-effect",
  "create-lands-very-late",
  "probe-unknown",
  "list-stale",
  "list-failed",
  "destroy-failed",
  "destroy-failed-after-effect",
  "destroy-hung",
  "attach-unreachable",
  "attach-slow",
  "rebind-failed",
  "rebind-failed-after-effect",
  "activity-failed",
  "workspace-failed",
  "workspace-failed-after-effect",
  "engine-event-lost",
  // The store.
  "store-slow",
  "store-decision-slow",
  "store-failed-before-effect",
  "store-failed-after-effect",
  "store-effect-late",
  "store-answer-very-late",
  "store-hint-lost",
  "store-outage",
  "store-emptied",
  // Instances.
  "kill-before-effect",
  "kill-after-effect",
  "kill-in-flight",
  "pause-long",
  "pause-short",
  "pause-at-io",
  "instance-restarted",
  "close",
  "close-destroy",
  "clock-forward",
  "clock-back",
  "host-asleep",
  "host-frozen",
  "liveness-unknown",
  // Sandboxes and their users.
  "sandbox-crash",
  "sandbox-busy",
  "acquire-everywhere",
  "blanks-from-two-sides",
  "destroy-plain",
  "destroy-forced",
  "purge-plain",
  "purge-forced",
  "destroy-while-acquiring",
  "restore-plain",
  "restore-forced",
  "restore-actor-killed",
  "acquire-aborted",
  "released-twice",
  "remote-granted",
  "remote-renewed-elsewhere",
  "remote-released-elsewhere",
  "remote-left-to-expire",
  // Later additions draw from their own stream, so that the rest of a run stays the same.
  "store-answer-late",
  "engine-answer-late",
  "rush-for-room",
  "taken-and-ended-before-the-answer",
  "registered-unheard",
  "dead-before-the-store",
  "purged-before-the-loss",
  "looked-before-recovery",
  "confirm-lost",
  // Of runs with several engines.
  "partition-host-store",
  "partition-host-engine",
  "engine-unreachable",
  // Of runs on rows.
  "row-conflict",
  "row-commit-retried",
  "row-commit-late",
  "row-cursor-too-old",
  "store-rewound",
  "store-clock-stepped",
  "rewind-noticed",
] as const;
/** The first of the later kinds. */
const LATER = FAULT_KINDS.indexOf("store-answer-late");
/** The first of those that came with several engines. */
const LATEST = FAULT_KINDS.indexOf("partition-host-store");

export type FaultKind = (typeof FAULT_KINDS)[number];

/** Faults of single calls: the chance that a call is hit, in the runs where the kind is on. */
const CALL_RATES: Partial<Record<FaultKind, number>> = {
  "create-slow": 0.25,
  "create-failed": 0.1,
  "create-failed-after-effect": 0.1,
  "create-lands-very-late": 0.12,
  "probe-unknown": 0.3,
  "list-stale": 0.4,
  "list-failed": 0.15,
  "destroy-failed": 0.2,
  "destroy-failed-after-effect": 0.15,
  "destroy-hung": 0.15,
  "attach-unreachable": 0.1,
  "attach-slow": 0.2,
  "rebind-failed": 0.15,
  "rebind-failed-after-effect": 0.15,
  "activity-failed": 0.3,
  "workspace-failed": 0.08,
  "workspace-failed-after-effect": 0.08,
  "engine-event-lost": 0.4,
  "store-slow": 0.06,
  "store-decision-slow": 0.4,
  "store-failed-before-effect": 0.03,
  "store-failed-after-effect": 0.03,
  "store-effect-late": 0.012,
  "store-answer-very-late": 0.05,
  "store-hint-lost": 0.5,
  "liveness-unknown": 0.5,
  "store-answer-late": 0.06,
  "engine-answer-late": 0.1,
  "confirm-lost": 0.5,
};

export class Faults {
  /** After healing no fault fires. */
  healed = false;
  readonly #random: Random;
  readonly #more: Random;
  readonly #latest: Random;
  readonly #rates = new Map<FaultKind, number>();
  readonly fired = new Map<FaultKind, number>();

  constructor(random: Random, more: Random = random, latest: Random = more) {
    this.#random = random;
    this.#more = more;
    this.#latest = latest;
    for (const kind of FAULT_KINDS) {
      const full = CALL_RATES[kind];
      const share = this.#randomFor(kind).unit();
      // Off in nearly half of the runs; otherwise anything from a little to the full rate.
      if (full !== undefined) this.#rates.set(kind, share < 0.45 ? 0 : full * ((share - 0.45) / 0.55));
    }
  }

  /** Whether a fault of this kind hits the present call. Counts it. */
  hits(kind: FaultKind): boolean {
    if (this.healed || !this.#randomFor(kind).chance(this.#rates.get(kind) ?? 0)) return false;
    this.count(kind);
    return true;
  }

  #randomFor(kind: FaultKind): Random {
    const index = FAULT_KINDS.indexOf(kind);
    return index >= LATEST ? this.#latest : index >= LATER ? this.#more : this.#random;
  }

  /** Counts an event of the workload. */
  count(kind: FaultKind): void {
    this.fired.set(kind, (this.fired.get(kind) ?? 0) + 1);
  }
}
