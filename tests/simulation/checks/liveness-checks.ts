/** After healing and some time: pending work must have settled, and leftovers must be gone. */

import type { SandboxId } from "@sandlot/contract";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import type { Findings } from "./findings.ts";
import { hasHolder } from "./hold-checks.ts";
import type { Asked } from "./lease-checks.ts";
import type { Truth } from "./truth.ts";

export class LivenessChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;

  constructor(truth: Truth, findings: Findings) {
    this.#truth = truth;
    this.#findings = findings;
  }

  /** Whether no work is pending. */
  isQuiet(): boolean {
    const { tables, ledger, settings, instances } = this.#truth;
    if (this.#isRecovering() || tables.records().some(({ state }) => state !== "ready")) return false;
    if (tables.sessions().some(({ instance }) => instances.get(instance)?.process.alive !== true)) return false;
    for (const record of tables.records()) if (this.#truth.objectOf(record)?.alive !== true) return false;
    if (this.#halfRestored().length > 0) return false;
    for (const { labels } of ledger.objects.values()) {
      if (labels.fleet === settings.fleetId && tables.record(labels.sandboxId) === null) return false;
    }
    return true;
  }

  #isRecovering(): boolean {
    const { tables } = this.#truth;
    const engines = tables.isShared ? [...this.#truth.reachable()] : [""];
    return engines.some((engine) => tables.isRecovering(engine));
  }

  /** The run is quiet: no faults, no paused process, a responding store, and enough time has passed. */
  atRest(): void {
    const { tables, ledger, settings, instances } = this.#truth;
    const between = tables.records().filter((record) => record.state !== "ready" && this.#isStuck(record));
    this.#findings.check("nothing-in-between", between.length === 0, () =>
      between.map(({ sandboxId, state, actor }) => `${sandboxId} ${state} by ${actor}`).join(", "),
    );
    const known = new Set<SandboxId>(tables.records().map(({ sandboxId }) => sandboxId));
    const orphans = [...ledger.objects.values()].filter(
      ({ labels, landedAt }) =>
        labels.fleet === settings.fleetId && !known.has(labels.sandboxId) && this.#isPastGrace(landedAt),
    );
    this.#findings.check("no-orphans", orphans.length === 0, () =>
      orphans.map(({ ref, labels }) => `${ref} of ${labels.sandboxId}`).join(", "),
    );
    const ghosts = tables
      .records()
      .filter((record) => record.state === "ready" && this.#truth.objectOf(record)?.alive !== true);
    this.#findings.check("no-ghosts", ghosts.length === 0, () => ghosts.map(({ sandboxId }) => sandboxId).join(", "));
    const dead = tables.sessions().filter(({ instance }) => instances.get(instance)?.process.alive !== true);
    this.#findings.check("no-dead-sessions", dead.length === 0, () => dead.map(({ instance }) => instance).join(", "));
    this.#checkLeftovers();
    this.#checkRestores();
    this.#checkDue();
    this.#checkHolds();
    this.#checkForcedLosses();
  }

  /** Every call of a living process has settled. */
  checkSettled(pending: ReadonlyMap<Asked, string>): void {
    const told = ([asked, kind]: [Asked, string]) =>
      `${kind} of ${asked.owner} at ${asked.instance.name} since ${asked.at}`;
    const acquires = [...pending].filter(([, kind]) => kind === "acquire");
    const others = [...pending].filter(([, kind]) => kind !== "acquire");
    this.#findings.check("acquires-have-settled", acquires.length === 0, () => acquires.map(told).join(", "));
    this.#findings.check("destroys-have-settled", others.length === 0, () => others.map(told).join(", "));
  }

  checkCameBack(owner: string, back: boolean): void {
    this.#findings.check("threads-come-back", back, () => `${owner} could not be acquired`);
  }

  /** As many blanks as configured, as far as there is room. */
  checkPool(): void {
    const pools = this.#pools();
    this.#findings.check("pool-is-back", this.isPoolBack(), () => JSON.stringify(pools));
  }

  isPoolBack(): boolean {
    return this.#pools().every(({ blanks, target, room }) => blanks === target || (blanks < target && room <= 0));
  }

  #pools(): readonly { name: string; blanks: number; target: number; room: number }[] {
    const { tables, settings, ledger } = this.#truth;
    const records = tables.records();
    return ledger.all.flatMap(({ name: engine }) => {
      const room = this.#truth.hasRoomOn(engine) ? settings.limits.max - records.length : 0;
      return Object.entries(settings.blueprints).map(([name, { hash }]) => {
        const blanks = records.filter(
          (one) => one.state === "ready" && one.thread === null && one.blueprintHash === hash && one.engine === engine,
        );
        return { name, blanks: blanks.length, target: settings.pool[name] ?? 0, room };
      });
    });
  }

  /** Every instance closed, the last ones with destroy. */
  afterClose(): void {
    const { tables, ledger, settings } = this.#truth;
    const left = [
      ...tables.records().map(({ sandboxId, state }) => `record ${sandboxId} ${state}`),
      ...tables.sessions().map(({ instance }) => `session ${instance}`),
      ...[...ledger.objects.values()]
        .filter(({ labels }) => labels.fleet === settings.fleetId)
        .map(({ ref }) => `object ${ref}`),
    ];
    this.#findings.check("nothing-is-left", left.length === 0, () => left.join(", "));
    this.#checkLeftovers();
    for (const owner of this.#truth.threads.keys()) this.#checkKept(owner);
  }

  #checkKept(owner: string): void {
    const { acknowledged } = this.#truth.thread(owner);
    const tokens = this.#truth.ledger.homes.get(owner)?.tokens;
    const missing = [...acknowledged.keys()].filter((token) => tokens?.has(token) !== true);
    this.#findings.check(
      "acknowledged-writes-stay",
      missing.length === 0,
      () => `${owner} at home misses ${missing.join(", ")}`,
    );
  }

  /** Slots and markers belong to objects. The marker of a lost bind goes with its sandbox at the latest. */
  #checkLeftovers(): void {
    const { ledger } = this.#truth;
    const present = new Set([...ledger.objects.values()].map(({ labels }) => labels.sandboxId));
    const left: string[] = [];
    for (const [place, { sandboxId }] of ledger.slots) if (!present.has(sandboxId)) left.push(place);
    for (const sandboxId of ledger.markers.keys()) if (!present.has(sandboxId)) left.push(`markers of ${sandboxId}`);
    this.#findings.check("no-leftovers", left.length === 0, () => left.join(", "));
  }

  /** An instance that died in the middle of a restore has left it to another one. */
  #checkRestores(): void {
    const half = this.#halfRestored();
    this.#findings.check("restores-are-finished", half.length === 0, () => half.join(", "));
  }

  #halfRestored(): readonly string[] {
    return this.#truth.ledger.all.flatMap(({ histories }) =>
      [...histories].flatMap(([owner, { unfinished }]) => (unfinished === null ? [] : [owner])),
    );
  }

  /** Every sandbox overdue for longer than an instance may doubt itself has ended. */
  #checkDue(): void {
    const { tables, settings } = this.#truth;
    const { idleTimeoutMs, maxLifetimeMs, sessionLifetimeMs } = settings;
    if (!this.#truth.isClockSteady) return;
    const isLate = (since: number, afterMs: number) =>
      afterMs > 0 && this.#truth.awakeMs(this.#truth.fromStoreClock(since)) > afterMs + 3 * sessionLifetimeMs;
    const overdue = tables.records().filter((record) => {
      if (record.state !== "ready" || hasHolder(record)) return false;
      if (isLate(record.createdAt, maxLifetimeMs)) return true;
      const isBusy = this.#truth.objectOf(record)?.busySince !== null;
      return record.thread !== null && !isBusy && isLate(record.parkedAt ?? record.createdAt, idleTimeoutMs);
    });
    this.#findings.check("due-is-ended", overdue.length === 0, () => overdue.map(({ sandboxId }) => sandboxId).join());
  }

  /** An instance holds exactly the sandboxes it has leases on. */
  #checkHolds(): void {
    const { tables, leases } = this.#truth;
    const wrong: string[] = [];
    for (const record of tables.records()) {
      for (const id of Object.keys(record.holders)) {
        const used = [...leases].some(
          (held) => held.instance.id === id && held.active && held.sandboxId === record.sandboxId,
        );
        if (!used) wrong.push(`${id} holds ${record.sandboxId} without a lease`);
      }
    }
    for (const held of leases) {
      if (!held.active || held.instance.closing) continue;
      if (!this.#truth.hasHold(held.instance, held.sandboxId, held.generation)) {
        wrong.push(`${held.instance.name} has a lease on ${held.sandboxId} without holding it`);
      }
    }
    this.#findings.check("holds-match-leases", wrong.length === 0, () => wrong.join(", "));
  }

  #checkForcedLosses(): void {
    for (const held of this.#truth.leases) {
      const { forced, lost, instance } = held;
      if (forced === null || !instance.process.alive || instance.closing) continue;
      // A caller that released first did not wait for the report; an instance without the store could not give one.
      const pausedMs = instance.process.pausedMs - forced.pausedMs;
      const until = held.releasedAt ?? this.#truth.now;
      const failed = instance.storeFailures.findLast(({ at }) => at > forced.at && at <= until);
      const unansweredAt = failed?.at ?? forced.at;
      const heldOnMs = until - unansweredAt - pausedMs;
      if (heldOnMs < this.#truth.settings.sessionLifetimeMs) continue;
      // A pause exhausts every timeout, and a lost store forgets the reason.
      if (pausedMs > 0 || this.#truth.emptiedAt >= forced.at) continue;
      // Without the store's reason, an instance knows only that the sandbox is gone.
      const told =
        lost !== null &&
        (lost.reason === "destroyed" ||
          lost.reason === "restored" ||
          held.interrupted ||
          lost.at < forced.at ||
          lost.storeFailedAt >= forced.at);
      this.#findings.check(
        "forced-destroy-is-told",
        told,
        () =>
          `${instance.name} held ${held.lease.id}, destroyed at ${forced.at}, and was told ${lost?.reason} at ${lost?.at}`,
      );
    }
  }

  /** Housekeeping goes on; work it began just now is not stuck. */
  #isStuck({ sandboxId }: SandboxRecord): boolean {
    const { stoppedAt, recordedAt, now, settings } = this.#truth;
    const since = stoppedAt.get(sandboxId) ?? recordedAt.get(sandboxId) ?? Number.NEGATIVE_INFINITY;
    return now - since > 2 * settings.sessionLifetimeMs;
  }

  #isPastGrace(landedAt: number): boolean {
    const { settings, now } = this.#truth;
    return now - landedAt > 2 * settings.orphanTimeoutMs + 4 * settings.sessionLifetimeMs;
  }
}
