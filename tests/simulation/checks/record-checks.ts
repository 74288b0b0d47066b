/** Moves, revisions, identity, generations and limits of records. */

import type { Generation, SandboxId } from "@sandlot/contract";
import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import type { ClaimForRemovalRequest, StopRequest, TakeAnswer } from "../../../packages/fleet/src/store/store.ts";
import type { StoreStep } from "../store/sim-store.ts";
import type { Findings } from "./findings.ts";
import type { MoveName } from "./invariants.ts";
import { ownerOf, type Truth } from "./truth.ts";

/** The allowed moves of each step, and their names. */
const STEPS: Readonly<Record<string, MoveName>> = {
  "reserve absent→creating": "absent→creating",
  "take absent→creating": "absent→creating",
  "restore absent→ready": "absent→ready (restore)",
  "adopt absent→ready": "absent→ready (adopt)",
  "claimForRemoval absent→stopping": "absent→stopping (claimForRemoval)",
  "stop/cancel creating→creating": "creating (cancel)",
  "publish creating→ready": "creating→ready",
  "stop/abandon creating→stopping": "creating→stopping (abandon)",
  "takeOver creating→stopping": "creating→stopping (take-over)",
  "stop/unheld ready→stopping": "ready→stopping (unheld)",
  "stop/dead ready→stopping": "ready→stopping (dead)",
  "stop/force ready→stopping": "ready→stopping (force)",
  "takeOver stopping→stopping": "stopping (take-over)",
  "bind ready→ready": "bind",
  "confirmBound ready→ready": "confirm-bound",
};

/** An engine object that lands during the request stays unseen. */
const SEEN_MS = 2_000;
/**
 * An instance's uncertainty about the store's clock after late responses, pauses and sleep; a clock step exceeds it.
 */
const AGE_MARGIN_MS = 120_000;

/** Faults after which an instance does not know the engine's objects. */
const ENGINE_SILENCES = [
  "probe-unknown",
  "workspace-failed",
  "workspace-failed-after-effect",
  "engine-answer-late",
  "partition-host-engine",
  "engine-unreachable",
] as const;

export class RecordChecks {
  readonly #truth: Truth;
  readonly #findings: Findings;
  /** The highest generation that the present store gave, or that existed when it began to serve. */
  #given = 0;
  /** The same without what was given before the last loss: a store whose clock was set back since does not know it. */
  #givenSinceLoss = 0;
  /** How many engine requests had failed when the store was last lost. */
  #unansweredAtLoss = 0;
  /** When each sandbox's records were written: an adopted sandbox gets a young one. */
  readonly #madeAt = new Map<SandboxId, number[]>();

  constructor(truth: Truth, findings: Findings) {
    this.#truth = truth;
    this.#findings = findings;
  }

  put(before: SandboxRecord | null, after: SandboxRecord, step: StoreStep): void {
    this.#checkMove(before, after, step);
    this.#checkIdentity(before, after, step);
    this.#checkKey(after);
    if (before === null || step.method === "bind") {
      this.#checkGeneration(before, after, step);
      this.#checkLimits(before, after, step);
    }
    if (before === null) this.#checkAge(after, step);
    if (before === null && step.method === "restore") this.#checkThere(after, step);
    if (after.state === "ready") this.#truth.published.add(after.sandboxId);
  }

  ended(step: StoreStep, result: unknown): void {
    if (step.method !== "take") return;
    const answer = result as TakeAnswer | null;
    if (answer?.kind === "blank") this.#checkGiven(answer.generation);
  }

  /** Another store, which may count from a lower number, because the wall clock was stepped back meanwhile. */
  emptied(): void {
    this.#unansweredAtLoss = this.#unanswered();
    const { tables } = this.#truth;
    if (Math.min(tables.host.wallMs(), tables.now()) <= this.#given) this.#given = 0;
    this.#givenSinceLoss = 0;
  }

  /** From now on the store gives no generation that any object carries. Later landings could not be known. */
  recovered(engine: string, sentAt: number): void {
    const { settings } = this.#truth;
    const ledger = this.#truth.ledger.of(engine);
    for (const { labels, generation, landedAt } of ledger.objects.values()) {
      if (labels.fleet === settings.fleetId && landedAt < sentAt - SEEN_MS)
        this.#raise(Math.max(generation, labels.generation));
    }
    for (const [owner, generation] of ledger.fences)
      if ((ledger.fencedAt.get(owner) ?? 0) < sentAt - SEEN_MS) this.#raise(generation);
  }

  #raise(generation: number): void {
    this.#given = Math.max(this.#given, generation);
    this.#givenSinceLoss = Math.max(this.#givenSinceLoss, generation);
  }

  /** A new store may have another time: restored records must have their age on the new clock. */
  #checkAge({ sandboxId, createdAt }: SandboxRecord, step: StoreStep): void {
    const { now } = this.#truth;
    const madeAt = this.#madeAt.get(sandboxId) ?? [];
    if (step.method !== "restore") this.#madeAt.set(sandboxId, [...madeAt, now]);
    else if (this.#truth.isClockSteady) {
      const agesMs = madeAt.map((at) => this.#truth.awakeMs(at));
      const ageMs = this.#truth.awakeMs(this.#truth.fromStoreClock(createdAt));
      this.#findings.check(
        "age-is-kept",
        agesMs.some((trueMs) => Math.abs(trueMs - ageMs) <= AGE_MARGIN_MS),
        () => `${sandboxId} was made ${agesMs.join(" and ")} ms ago, and is put back as ${ageMs} ms old`,
      );
    }
  }

  /** An instance restores a record only after it asked the engine. A failed request counts as "exists". */
  #checkThere({ sandboxId, ref }: SandboxRecord, { sentAt }: StoreStep): void {
    const { ledger, emptiedAt } = this.#truth;
    if (ref === null || this.#unanswered() > this.#unansweredAtLoss) return;
    const goneAt = ledger.departed.get(ref)?.at ?? ledger.objects.get(ref)?.diedAt ?? Number.POSITIVE_INFINITY;
    // The restoring instance heard of the loss first, and asked the engine after that.
    this.#findings.check(
      "put-back-is-there",
      goneAt > emptiedAt || sentAt < emptiedAt,
      () => `${sandboxId} is gone since ${goneAt}`,
    );
  }

  /** How many engine requests have failed so far. */
  #unanswered(): number {
    const { fired } = this.#truth.faults;
    return ENGINE_SILENCES.reduce((sum, kind) => sum + (fired.get(kind) ?? 0), 0);
  }

  #checkMove(before: SandboxRecord | null, after: SandboxRecord, step: StoreStep): void {
    const from = before?.state ?? "absent";
    const request = step.args[0] as Partial<StopRequest> | undefined;
    const by = step.method === "stop" ? `stop/${request?.mode?.kind}` : step.method;
    const name = STEPS[`${by} ${from}→${after.state}`];
    const allowed = name !== undefined || from === after.state;
    this.#findings.check("only-allowed-moves", allowed, () => `${from}→${after.state} by ${by} of ${step.by.name}`);
    if (name !== undefined) this.#findings.moved(name);
    if (step.method === "stop" && from === "stopping" && after.purge) this.#findings.moved("stopping (purge added)");
    const grew = before === null ? after.revision >= 1 : after.revision === before.revision + 1;
    this.#findings.check("revision-grows", grew, () => `${before?.revision} → ${after.revision} by ${by}`);
    const acting = after.state !== "ready";
    this.#findings.check(
      "actor-exactly-while-acting",
      acting === (after.actor !== null) && (before !== null || !acting || after.actor === step.by.id),
      () => `${after.state} with actor ${after.actor}, by ${step.by.name}`,
    );
  }

  #checkIdentity(before: SandboxRecord | null, after: SandboxRecord, step: StoreStep): void {
    const owner = ownerOf(after);
    if (owner !== null && !this.#truth.owners.has(after.sandboxId)) {
      this.#truth.owners.set(after.sandboxId, owner);
      this.#truth.ownedSince.set(after.sandboxId, this.#truth.now);
    }
    if (owner !== null) this.#truth.thread(owner).blueprints.add(after.blueprintHash);
    if (before === null) return;
    if (step.method === "bind") this.#checkBlueprint(after);
    // Binding rotates the token: the blank's token no longer works.
    const isBlank = before.thread === null && before.state === "ready";
    const bound =
      step.method === "bind" && isBlank && after.token !== before.token && after.generation > before.generation;
    const kept =
      before.createdAt === after.createdAt &&
      before.backend === after.backend &&
      before.blueprintHash === after.blueprintHash &&
      (before.state === "creating" || (before.ref === after.ref && before.place === after.place)) &&
      (bound ||
        (ownerOf(before) === owner && before.generation === after.generation && before.token === after.token)) &&
      (!before.purge || after.purge);
    this.#findings.check("identity-is-kept", kept, () => `${JSON.stringify(before)} → ${JSON.stringify(after)}`);
  }

  /** The marker names the thread's intended sandbox. */
  #checkBlueprint({ sandboxId, generation, blueprintHash }: SandboxRecord): void {
    const marker = this.#truth.ledger.markers.get(sandboxId)?.get(generation);
    this.#findings.check(
      "blueprint-is-as-asked",
      marker === undefined || marker.blueprintHash === blueprintHash,
      () => `${sandboxId} was made from ${blueprintHash}, and bound for ${marker?.blueprint}`,
    );
  }

  #checkKey(after: SandboxRecord): void {
    const owner = ownerOf(after);
    if (owner === null) return;
    let other: SandboxRecord | undefined;
    for (const record of this.#truth.tables.records()) {
      if (record.sandboxId !== after.sandboxId && record.thread === after.thread && record.user === after.user) {
        other = record;
      }
    }
    this.#findings.check("one-record-per-thread", other === undefined, () => `${owner} also has ${other?.sandboxId}`);
  }

  #checkGeneration(before: SandboxRecord | null, after: SandboxRecord, step: StoreStep): void {
    const { generation } = after;
    const isGiven = step.method === "claimForRemoval" && (step.args[0] as ClaimForRemovalRequest).generation === null;
    if (isReserved(step) || isGiven) this.#checkGiven(generation);
    const owner = ownerOf(after);
    if (owner === null) return;
    // A generation counts from its first lease; a merely intended one leaves no trace.
    const { latestLeased, latestEngine } = this.#truth.thread(owner);
    const returned = !isReserved(step) && step.method !== "bind";
    const { sandboxId, user, thread } = after;
    const refused =
      user !== null &&
      thread !== null &&
      this.#truth.ledgerOf(after).isStale({ user, thread, sandboxId, generation, place: "home" });
    const grows =
      generation > latestLeased ||
      // After a loss the store may count from too low; then the engine refuses the number, and the store learns.
      (!returned && this.#truth.emptiedAt > 0 && refused) ||
      // Fences are of one engine. Until the former engine has recovered, the store does not know its generations.
      (!returned && this.#isUnheardOf(latestEngine, after)) ||
      (returned && generation === latestLeased) ||
      // A purged thread that never had a sandbox here is compared with no generation of its former engine.
      (returned && this.#isPurgedElsewhere(owner, latestEngine, after)) ||
      // A sandbox that is being cleaned up, or dead, serves no caller, whatever its generation.
      after.state === "stopping" ||
      (returned && this.#truth.objectOf(after)?.alive !== true);
    this.#findings.check(
      "generation-grows-per-thread",
      grows && (before === null || generation > before.generation),
      () => `${owner}: ${generation} after ${latestLeased}, by ${step.method}`,
    );
  }

  /** The thread began on another engine, of which the present store has not heard before the generation was given. */
  #isUnheardOf(former: string | null, { engine }: SandboxRecord): boolean {
    const { emptiedAt, recoveredAt } = this.#truth;
    return emptiedAt > 0 && former !== null && former !== engine && !recoveredAt.has(former);
  }

  /** It never served the thread on this engine: a create that landed too late, or a bind that a new store has forgotten. */
  #isPurgedElsewhere(owner: string, former: string | null, { engine, sandboxId }: SandboxRecord): boolean {
    const { leased } = this.#truth;
    const wasPurged = this.#truth.thread(owner).purgeAskedAt >= 0;
    return wasPurged && former !== null && former !== engine && !leased.has(sandboxId);
  }

  #checkGiven(generation: Generation): void {
    const { storeClockSetAt, emptiedAt } = this.#truth;
    const given = storeClockSetAt > emptiedAt ? this.#givenSinceLoss : this.#given;
    this.#findings.check(
      "generation-never-repeats",
      Number.isInteger(generation) && generation > given,
      () => `${generation} was given after ${given}`,
    );
    this.#raise(generation);
  }

  /** A restored record was counted before the store loss; an orphaned one is being ended. */
  #checkLimits(before: SandboxRecord | null, after: SandboxRecord, step: StoreStep): void {
    const { limits } = this.#truth.settings;
    if (limits.mode !== "hard" || step.method === "restore" || step.method === "claimForRemoval") return;
    let all = 0;
    let own = 0;
    const counted = [...this.#truth.tables.records().filter(({ sandboxId }) => sandboxId !== after.sandboxId), after];
    for (const record of counted) {
      if (record.reason === "orphaned") continue;
      all += 1;
      if (record.user === after.user) own += 1;
    }
    if (before === null) this.#findings.check("fleet-limit", all <= limits.max, () => `${all} of ${limits.max}`);
    const there = counted.filter(({ engine, reason }) => engine === after.engine && reason !== "orphaned").length;
    if (before === null && limits.maxPerEngine > 0)
      this.#findings.check("engine-limit", there <= limits.maxPerEngine, () => `${there} of ${limits.maxPerEngine}`);
    const userMax = this.#truth.userMax(after.user);
    if (userMax === 0) return;
    this.#findings.check("user-limit", own <= userMax, () => `${after.user}: ${own} of ${userMax}`);
  }
}

/** Steps that write the first record of a new sandbox. */
function isReserved({ method }: StoreStep): boolean {
  return method === "reserve" || method === "take";
}
