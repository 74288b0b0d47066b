/** Passes every row change, with the step that makes it, to the checks of its kind. */

import type { SandboxRecord } from "../../../packages/fleet/src/store/record.ts";
import type { Session } from "../../../packages/fleet/src/store/store.ts";
import type { StoreAudit, StoreStep } from "../store/sim-store.ts";
import type { TablesAudit } from "../store/watched-tables.ts";
import { AdmissionChecks } from "./admission-checks.ts";
import type { Findings } from "./findings.ts";
import { HoldChecks } from "./hold-checks.ts";
import { ReachChecks } from "./reach-checks.ts";
import { RecordChecks } from "./record-checks.ts";
import { answeredParts, partFor } from "./rejoin-steps.ts";
import { RestoreChecks } from "./restore-checks.ts";
import { SessionChecks } from "./session-checks.ts";
import { StopChecks } from "./stop-checks.ts";
import type { Truth } from "./truth.ts";

export class StoreChecks implements TablesAudit, StoreAudit {
  readonly admission: AdmissionChecks;
  readonly #records: RecordChecks;
  readonly #stops: StopChecks;
  readonly #holds: HoldChecks;
  readonly #sessions: SessionChecks;
  readonly #reach: ReachChecks;
  readonly #restores: RestoreChecks;
  #step: StoreStep | null = null;

  constructor(truth: Truth, findings: Findings) {
    this.admission = new AdmissionChecks(truth, findings);
    this.#records = new RecordChecks(truth, findings);
    this.#holds = new HoldChecks(truth, findings);
    this.#stops = new StopChecks(truth, findings, this.#holds);
    this.#sessions = new SessionChecks(truth, findings);
    this.#reach = new ReachChecks(truth, findings);
    this.#restores = new RestoreChecks(truth, findings);
  }

  asked(step: StoreStep): void {
    this.#sessions.asked(step);
    this.#stops.asked(step);
    this.admission.asked(step);
  }

  began(step: StoreStep): void {
    this.#step = step;
  }

  ended(step: StoreStep, result: unknown): void {
    this.#step = null;
    this.#records.ended(step, result);
  }

  answered(step: StoreStep, result: unknown): void {
    this.#sessions.answered(step, result);
    for (const part of answeredParts(step, result)) this.#holds.answered(part.step, part.result);
    this.#stops.answered(step, result);
    this.admission.answered(step, result);
  }

  failed(step: StoreStep): void {
    this.#sessions.failed(step);
    this.admission.failed(step);
  }

  recordPut(before: SandboxRecord | null, after: SandboxRecord): void {
    if (this.#step === null) return;
    const step = partFor(this.#step, after.sandboxId);
    this.#records.put(before, after, step);
    this.#reach.put(before, after, step);
    this.#holds.put(before, after, step);
    this.#stops.put(before, after, step);
    this.#restores.put(before, after);
    this.admission.put(before, after, step);
  }

  recordDeleted(before: SandboxRecord): void {
    if (this.#step === null) return;
    this.#stops.deleted(before, this.#step);
    this.#restores.deleted(before);
    this.#reach.deleted(before, this.#step);
  }

  sessionPut(before: Session | null, after: Session): void {
    this.#sessions.put(before, after);
  }

  sessionDeleted(before: Session): void {
    if (this.#step !== null) this.#sessions.deleted(before, this.#step);
  }

  recoveryEnded(engine: string): void {
    this.#sessions.recoveryEnded(engine, this.#step);
    if (this.#step !== null) this.#records.recovered(engine, this.#step.sentAt);
  }

  emptied(): void {
    this.#records.emptied();
    this.#sessions.emptied();
    this.#holds.emptied();
    this.#reach.emptied();
  }
}
