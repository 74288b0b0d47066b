/**
 * Compares each request to the engine with the store at that moment.
 *
 * A peer may end the session of an instance, or the store may be lost, while a call of the instance is in transit. The
 * instance cannot know that, so exactly those calls are exempt.
 */

import type { EngineRef, SandboxId } from "@sandlot/contract";
import type { CreateSpec, Credentials, Target, WorkspaceSpot } from "../../../packages/fleet/src/backend/backend.ts";
import { threadKeyOf } from "../../../packages/fleet/src/backend/labels.ts";
import type { EngineAudit } from "../engine/audit.ts";
import { nameOf, type SimObject, type Workspace } from "../engine/ledger.ts";
import { DRIFT_MARGIN } from "../process/host.ts";
import type { Instance } from "../process/instance.ts";
import type { Findings } from "./findings.ts";
import { hasHolder } from "./hold-checks.ts";
import { RestoreChecks } from "./restore-checks.ts";
import { ownerOf, type Truth } from "./truth.ts";

type Step = "moveIn" | "makeIn" | "moveHome" | "purge";

export class EngineChecks implements EngineAudit {
  readonly #truth: Truth;
  readonly #findings: Findings;
  readonly #restores: RestoreChecks;
  readonly #refs = new Set<EngineRef>();

  constructor(truth: Truth, findings: Findings) {
    this.#truth = truth;
    this.#findings = findings;
    this.#restores = new RestoreChecks(truth, findings);
  }

  createAsked(by: Instance, spec: CreateSpec): void {
    const { labels, marker, generation, token } = spec;
    const record = this.#truth.tables.record(labels.sandboxId);
    const known =
      record !== null &&
      record.state === "creating" &&
      record.actor === by.id &&
      record.generation === generation &&
      record.token === token &&
      (marker === null
        ? record.thread === null
        : marker.user === record.user &&
          marker.thread === record.thread &&
          marker.generation === generation &&
          marker.token === token &&
          marker.sandboxId === labels.sandboxId &&
          marker.blueprintHash === record.blueprintHash);
    this.#findings.check(
      "intent-first",
      known || this.#couldNotKnow(by),
      () => `${by.name} makes ${labels.sandboxId} generation ${generation}; the record is ${JSON.stringify(record)}`,
    );
    const { fleetId } = this.#truth.settings;
    const key = marker === null ? null : threadKeyOf(marker.user, marker.thread);
    const complete =
      labels.fleet === fleetId &&
      labels.generation === generation &&
      labels.threadKey === key &&
      labels.engine === by.engine &&
      labels.blueprintHash === (record?.blueprintHash ?? labels.blueprintHash);
    this.#findings.check("labels-are-complete", complete, () => JSON.stringify(labels));
  }

  /** Of an older generation than the thread's own record, which this instance restores: rule 3. */
  #isOutdatedForRestore(by: Instance, { threadKey, generation }: SimObject["labels"]): boolean {
    return this.#truth.tables.records().some((record) => {
      if (record.state !== "stopping" || record.restore === undefined || record.actor !== by.id) return false;
      const { user, thread } = record;
      return (
        user !== null && thread !== null && threadKeyOf(user, thread) === threadKey && generation < record.generation
      );
    });
  }

  destroyAsked(by: Instance, ref: EngineRef): void {
    this.refUsed(by, ref, "destroy");
    const object = this.#truth.ledger.objects.get(ref);
    if (object === undefined) return;
    const { sandboxId } = object.labels;
    const record = this.#truth.tables.record(sandboxId);
    const stopping = record?.state === "stopping";
    // A sandbox that was never leased belongs to its maker, which removes it whatever became of the record.
    const unmade = object.madeBy === by.name && !this.#truth.published.has(sandboxId);
    const other = (record !== null && record.ref !== null && record.ref !== ref) || (record === null && unmade);
    const outdated = this.#isOutdatedForRestore(by, object.labels);
    this.#findings.check(
      "destroyed-only-when-stopping",
      stopping || other || outdated || this.#couldNotKnow(by),
      () => `${by.name} destroys ${ref} of ${sandboxId}; the record is ${JSON.stringify(record)}`,
    );
    if (!object.alive) return;
    const held = [...this.#truth.activeLeases(sandboxId, object.generation)].filter((lease) =>
      this.#truth.isUsable(lease),
    );
    const forced = this.#truth.forcedStops.has(sandboxId);
    const remote = record !== null && !stopping && hasHolder(record);
    this.#findings.check(
      "destroyed-only-when-unheld",
      (held.length === 0 || forced) && !remote,
      () => `${by.name} destroys ${sandboxId}, leased by ${held.map(({ instance }) => instance.name).join(", ")}`,
    );
  }

  refUsed(by: Instance, ref: EngineRef, method: string): void {
    if (!by.process.alive) return;
    for (const known of this.#truth.ledger.objects.keys()) this.#refs.add(known);
    this.#findings.check("addressed-by-ref", this.#refs.has(ref), () => `${by.name}: ${method} of ${ref}`);
    const fleet = this.#truth.ledger.objects.get(ref)?.labels.fleet;
    const ours = fleet === undefined || fleet === this.#truth.settings.fleetId;
    this.#findings.check("other-fleets-untouched", ours, () => `${by.name}: ${method} of ${ref}`);
    if (!this.#truth.tables.isShared) return;
    const engine = this.#truth.ledger.engineOf(ref);
    this.#findings.check(
      "engine-knows-what-it-is-asked",
      engine === null || engine === by.engine,
      () => `${by.name} asks ${by.engine} for ${method} of ${ref}`,
    );
  }

  sandboxAsked(by: Instance, sandboxId: SandboxId, method: string): void {
    const engine = this.#truth.engines.get(sandboxId) ?? by.engine;
    if (!this.#truth.tables.isShared || !by.process.alive) return;
    this.#findings.check(
      "engine-knows-what-it-is-asked",
      engine === by.engine,
      () => `${by.name} asks ${by.engine} for ${method} of ${sandboxId} on ${engine}`,
    );
  }

  rebound(by: Instance, target: Target, from: Credentials): void {
    const record = this.#truth.tables.record(target.sandboxId);
    const bound = record !== null && record.generation === target.generation && record.token === target.token;
    const told = record?.boundFrom === null || record?.boundFrom.generation === from.generation;
    this.#findings.check(
      "rebind-follows-bind",
      (bound && told) || this.#couldNotKnow(by) || this.#endedSince(by, target),
      () => `${by.name} told ${target.sandboxId} generation ${target.generation}`,
    );
    const marker = this.#truth.ledger.markers.get(target.sandboxId)?.get(target.generation);
    this.#findings.check(
      "marker-before-bind",
      marker !== undefined && (!bound || (marker.user === record.user && marker.thread === record.thread)),
      () => `${target.sandboxId} generation ${target.generation}`,
    );
  }

  workspaceAsked(by: Instance, step: Step, spot: WorkspaceSpot): void {
    const record = this.#truth.tables.record(spot.sandboxId);
    const same =
      record !== null &&
      ownerOf(record) === nameOf(spot) &&
      record.generation === spot.generation &&
      record.place === spot.place;
    const ending = step === "moveHome" || step === "purge";
    const right = same && (ending ? record.state === "stopping" : record.state === "ready");
    const detail = () => `${by.name}: ${step} of ${nameOf(spot)} ${spot.generation}; record ${JSON.stringify(record)}`;
    this.#findings.check(
      "workspace-steps-by-right",
      right || this.#couldNotKnow(by) || this.#endedSince(by, spot),
      detail,
    );
    if (step === "purge") {
      const purging = (right && record.purge && record.actor === by.id) || this.#couldNotKnow(by);
      this.#findings.check("purge-only-while-stopping", purging || this.#endedSince(by, spot), detail);
    }
  }

  workspaceChanged(by: Instance, step: Step, spot: WorkspaceSpot): void {
    const owner = nameOf(spot);
    if (step === "moveHome") {
      const living = [...this.#truth.objectsOf(spot.sandboxId)].find((object) => object.alive);
      this.#findings.check(
        "home-only-without-process",
        living === undefined,
        () => `${by.name}: ${owner}, ${living?.ref}`,
      );
    }
    // The fence refuses a late purge, which then removes nothing.
    const { fences } = this.#truth.ledger.of(by.engine);
    const purged = step === "purge" && fences.get(owner) === spot.generation;
    if (purged) this.#checkNobodyInside(owner);
    this.checkPlaces(owner);
  }

  /** Every sandbox ever leased for the thread must be gone before its workspace is removed. */
  #checkNobodyInside(owner: string): void {
    const { ledger, published, owners } = this.#truth;
    const living = [...ledger.objects.values()].find(({ labels: { sandboxId }, alive, generation }) => {
      // A blank that is bound only in the record has no owner and no workspace yet.
      const told = ledger.markers.get(sandboxId)?.has(generation) === true;
      return alive && told && published.has(sandboxId) && owners.get(sandboxId) === owner;
    });
    this.#findings.check(
      "home-only-without-process",
      living === undefined,
      () => `${owner} was purged under ${living?.ref}`,
    );
  }

  restoring(by: Instance, spot: WorkspaceSpot, workspace: Workspace, gone: ReadonlySet<string>): void {
    this.#restores.restoring(by, spot, workspace, gone);
  }

  restored(by: Instance, spot: WorkspaceSpot, workspace: Workspace): void {
    this.#restores.restored(by, spot, workspace);
  }

  used(by: Instance, spot: WorkspaceSpot): void {
    this.#restores.used(by, spot);
  }

  purged(by: Instance, spot: WorkspaceSpot, removed: readonly Workspace[]): void {
    const thread = this.#truth.thread(nameOf(spot));
    for (const { tokens } of removed) {
      for (const token of tokens) {
        thread.acknowledged.delete(token);
        this.#truth.purgedTokens.add(token);
      }
    }
    if (removed.length === 0) return;
    const asked = thread.purgeAskedAt >= 0 || spot.thread.startsWith("~");
    this.#findings.check("purge-only-when-asked", asked, () => `${by.name}: ${nameOf(spot)}`);
  }

  /** Purged content counts as gone, also when it was set aside; the thread must keep the rest. */
  quarantined({ owner, tokens }: Workspace): void {
    const { acknowledged, purgeAskedAt } = this.#truth.thread(owner);
    for (const token of tokens) if ((acknowledged.get(token) ?? 0) <= purgeAskedAt) acknowledged.delete(token);
  }

  /** A directory has content in two places, so one copy will be lost. */
  checkPlaces(owner: string): void {
    for (const { homes, slots } of this.#truth.ledger.all) {
      let places = homes.has(owner) ? 1 : 0;
      for (const slot of slots.values()) if (slot.workspace?.owner === owner) places += 1;
      this.#findings.check("workspace-in-one-place", places <= 1, () => `${owner} is in ${places} places`);
    }
  }

  wrote(by: Instance, object: SimObject, token: string): void {
    this.#restores.wrote(by, object, token);
    this.#truth.writes.set(token, object.generation);
    this.#findings.check(
      "one-thread-per-sandbox",
      object.writers.size <= 1,
      () => `${object.labels.sandboxId} was written by ${[...object.writers].join(", ")}`,
    );
    const owner = this.#truth.owners.get(object.labels.sandboxId);
    const latest = owner === undefined ? 0 : this.#truth.thread(owner).latestLeased;
    this.#findings.check(
      "stale-writes-nothing",
      object.generation >= latest,
      () => `${by.name} wrote ${token} as generation ${object.generation}; ${latest} was handed out`,
    );
  }

  /** A peer ended its session, or the store was lost, and the store has confirmed no heartbeat since. */
  #couldNotKnow(by: Instance): boolean {
    const { settings, emptiedAt } = this.#truth;
    const renewedMs = by.host.awakeMs(by.beatConfirmedSentAt) * (1 - DRIFT_MARGIN);
    if (renewedMs > settings.sessionLifetimeMs / 2) return false;
    return by.sessionSince === null || emptiedAt > by.beatConfirmedSentAt || by.sessionSince > by.beatConfirmedSentAt;
  }

  /** Another instance ended the sandbox within the time that a slow store response may hide. */
  #endedSince(by: Instance, of: { sandboxId: Target["sandboxId"]; generation: number }): boolean {
    const record = this.#truth.tables.record(of.sandboxId);
    return (record === null || record.state === "stopping") && !this.#truth.hasHold(by, of.sandboxId, of.generation);
  }
}
