/**
 * One instance's backend: each call becomes a plan (time of effect, time of response, result), drawn from the seed, and
 * is carried out on the ledger.
 */

import { type EngineRef, type FleetId, SandlotError } from "@sandlot/contract";
import type {
  Activity,
  Attachment,
  Backend,
  Capability,
  Created,
  CreateSpec,
  Credentials,
  EngineEvent,
  EngineObject,
  ListOptions,
  Target,
  Workspaces,
} from "../../../packages/fleet/src/backend/backend.ts";
import type { Checkpoints } from "../../../packages/fleet/src/backend/checkpoints.ts";
import type { Markers } from "../../../packages/fleet/src/backend/markers.ts";
import type { Liveness } from "../../../packages/fleet/src/world/world.ts";
import type { FaultKind, Faults } from "../faults.ts";
import type { Plan } from "../process/calls.ts";
import type { Instance } from "../process/instance.ts";
import type { Partitions } from "../process/partitions.ts";
import type { Random } from "../schedule/random.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import type { Trace } from "../schedule/trace.ts";
import type { EngineAudit } from "./audit.ts";
import type { EngineLedger, SimObject } from "./ledger.ts";
import { connect } from "./sim-sandbox.ts";
import { SimWorkspaces } from "./sim-workspaces.ts";

export interface EngineParts {
  readonly ledger: EngineLedger;
  readonly audit: EngineAudit;
  readonly faults: Faults;
  readonly random: Random;
  readonly scheduler: Scheduler;
  readonly trace: Trace;
  readonly fleetId: FleetId;
  readonly lateBinding: boolean;
  /** Whether a connection notices that its sandbox died; otherwise only the engine's events report it. */
  readonly connectionsNoticeDeath: boolean;
  readonly sessionLifetimeMs: number;
  /** Older responses to `list`, shared by all instances: a cache in front of the engine. */
  readonly snapshots: (readonly EngineObject[])[];
  readonly partitions: Partitions;
}

const SNAPSHOTS_MAX = 6;

export class SimBackend implements Backend {
  readonly name = "simulated";
  readonly engineId: string;
  readonly capabilities: ReadonlySet<Capability>;
  readonly workspaces: Workspaces;
  readonly markers: Markers;
  readonly checkpoints: Checkpoints;
  readonly #instance: Instance;
  readonly #parts: EngineParts;
  readonly #listeners = new Set<(event: EngineEvent) => void>();

  constructor(instance: Instance, parts: EngineParts) {
    this.#instance = instance;
    this.#parts = parts;
    this.engineId = parts.ledger.name;
    this.capabilities = new Set<Capability>(parts.lateBinding ? ["late-binding"] : []);
    const workspaces = new SimWorkspaces(instance, parts);
    this.workspaces = workspaces;
    this.markers = workspaces.markers;
    this.checkpoints = workspaces.checkpoints;
    parts.ledger.onDied((object) => this.#tellDeath(object));
  }

  create(spec: CreateSpec, signal: AbortSignal): Promise<Created> {
    const { ledger, audit, faults, random, sessionLifetimeMs } = this.#parts;
    if (this.#instance.process.alive) audit.createAsked(this.#instance, spec);
    this.#log("create", () => `${spec.labels.sandboxId} generation ${spec.generation}`);
    const failed = () => new SandlotError("create_failed", { backend: this.name, problem: "simulated" });
    const ms = faults.hits("create-slow") ? random.between(1_000, 8_000) : random.between(5, 200);
    let plan: Plan = { effectMs: ms, answerMs: ms };
    if (faults.hits("create-failed")) plan = { effectMs: null, answerMs: ms, error: failed() };
    else if (faults.hits("create-failed-after-effect")) plan = { effectMs: ms, answerMs: ms, error: failed() };
    else if (faults.hits("create-lands-very-late")) {
      // The engine gets the request, the response is lost, and the container appears long after every timeout.
      const answerMs = random.chance(0.5) ? random.between(50, 3_000) : null;
      plan = { effectMs: sessionLifetimeMs + random.between(0, 3 * sessionLifetimeMs), answerMs, error: failed() };
    }
    const { marker } = spec;
    const refused = marker !== null && ledger.isStale({ ...marker, place: "home" });
    const effect = () => {
      if (marker !== null && !refused && !ledger.isStale({ ...marker, place: "home" })) {
        audit.used(this.#instance, { ...marker, place: "home" });
        ledger.refuseHalfRestored(marker);
      }
      return ledger.create(spec, this.#instance.name, refused);
    };
    return this.#call("created", plan, effect, signal);
  }

  attach(target: Target, signal: AbortSignal): Promise<Attachment> {
    const { ledger, audit, faults, random } = this.#parts;
    audit.refUsed(this.#instance, target.ref, "attach");
    const { sandboxId } = target;
    const unreachable = () =>
      new SandlotError("sandbox_unreachable", { sandboxId, problem: "simulated", retryAfterMs: 100 });
    const slowMs = faults.hits("attach-slow") ? random.between(500, 5_000) : 0;
    const plan = this.#plan("attach-unreachable", unreachable, slowMs);
    const attach = () => {
      const object = ledger.reach(target);
      this.#instance.attachedAt.set(target.ref, this.#parts.scheduler.now);
      return connect(this.#instance, this.#parts, object, target);
    };
    return this.#call("attached", plan, attach, signal);
  }

  rebind(target: Target, from: Credentials, signal: AbortSignal): Promise<void> {
    const { ledger, audit, faults } = this.#parts;
    audit.refUsed(this.#instance, target.ref, "rebind");
    const { sandboxId } = target;
    const lost = () => new SandlotError("sandbox_unreachable", { sandboxId, problem: "simulated", retryAfterMs: 100 });
    let plan = this.#plan("rebind-failed", lost);
    if (faults.hits("rebind-failed-after-effect")) plan = { effectMs: 5, answerMs: 5, error: lost() };
    const effect = () => {
      ledger.rebind(target, from);
      audit.rebound(this.#instance, target, from);
    };
    return this.#call("rebound", plan, effect, signal);
  }

  probe(ref: EngineRef, signal: AbortSignal): Promise<Liveness> {
    const { ledger, audit, faults } = this.#parts;
    audit.refUsed(this.#instance, ref, "probe");
    if (isCutOff(this.#instance, this.#parts))
      return this.#instance.calls.make(hangs(this.#parts), () => "unknown", signal);
    const unknown = faults.hits("probe-unknown");
    return this.#call("probed", this.#plan(), () => (unknown ? "unknown" : ledger.probe(ref)), signal);
  }

  destroy(ref: EngineRef, signal: AbortSignal): Promise<void> {
    const { ledger, audit, faults, random, sessionLifetimeMs } = this.#parts;
    if (this.#instance.process.alive) audit.destroyAsked(this.#instance, ref);
    this.#log("destroy", () => ref);
    const ms = random.between(2, 150);
    const failed = () =>
      new SandlotError("sandbox_unreachable", { sandboxId: "", problem: "destroy failed", retryAfterMs: 100 });
    let plan: Plan = { effectMs: ms, answerMs: ms };
    if (faults.hits("destroy-failed")) plan = { effectMs: null, answerMs: ms, error: failed() };
    else if (faults.hits("destroy-failed-after-effect")) plan = { effectMs: ms, answerMs: ms, error: failed() };
    else if (this.#destroyHangs(ref) || faults.hits("destroy-hung")) {
      const effectMs = random.chance(0.5) ? null : sessionLifetimeMs + random.between(0, 2 * sessionLifetimeMs);
      plan = { effectMs, answerMs: null };
    }
    return this.#call("destroyed", plan, () => ledger.destroy(ref), signal);
  }

  list(options: ListOptions, signal: AbortSignal): Promise<readonly EngineObject[]> {
    const { ledger, faults, fleetId, random, snapshots } = this.#parts;
    const failed = () => new SandlotError("create_failed", { backend: this.name, problem: "list failed" });
    const plan = this.#plan("list-failed", failed);
    const stale = !options.consistent && snapshots.length > 0 && faults.hits("list-stale");
    const blurred = faults.hits("probe-unknown");
    const effect = () => {
      const fresh = ledger.list(fleetId);
      snapshots.push(fresh);
      if (snapshots.length > SNAPSHOTS_MAX) snapshots.shift();
      const seen = stale ? random.pick(snapshots) : fresh;
      const wanted =
        options.sandboxId === undefined ? seen : seen.filter((o) => o.labels.sandboxId === options.sandboxId);
      if (options.consistent && options.sandboxId === undefined && fresh.length === 0)
        this.#instance.sawNothingAt = this.#parts.scheduler.now;
      return blurred ? wanted.map((object) => ({ ...object, liveness: "unknown" as const })) : wanted;
    };
    return this.#call("listed", plan, effect, signal);
  }

  watch(listener: (event: EngineEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  activity(ref: EngineRef, signal: AbortSignal): Promise<Activity> {
    const { scheduler } = this.#parts;
    const asked: { readonly at: number; heardAt: number | null } = { at: scheduler.now, heardAt: null };
    this.#instance.activityAsked.set(ref, asked);
    return this.#activity(ref, signal).then((activity) => {
      asked.heardAt = scheduler.now;
      return activity;
    });
  }

  #activity(ref: EngineRef, signal: AbortSignal): Promise<Activity> {
    const { ledger, audit, scheduler } = this.#parts;
    audit.refUsed(this.#instance, ref, "activity");
    const failed = () =>
      new SandlotError("sandbox_unreachable", { sandboxId: "", problem: "activity", retryAfterMs: 100 });
    const effect = () => {
      const object = ledger.objects.get(ref);
      if (object?.alive !== true) {
        throw new SandlotError("sandbox_lost", { sandboxId: "", generation: 0, reason: "crashed" });
      }
      const busy = object.busySince !== null;
      return { runningExecs: busy ? 1 : 0, openTerminals: 0, previewTrafficAt: null, cpuShare: 0 };
    };
    const object = ledger.objects.get(ref);
    if (object?.script.busyOnceAsked !== true || this.#parts.faults.healed)
      return this.#call("activity", this.#plan("activity-failed", failed), effect, signal);
    object.script.busyOnceAsked = false;
    // Work begins inside while the response "idle" is in transit.
    scheduler.after(200, () => {
      if (object.alive) object.busySince ??= scheduler.now;
    });
    return this.#call("activity", this.#lateAnswer({ effectMs: 5, answerMs: 5 }), effect, signal);
  }

  #destroyHangs(ref: EngineRef): boolean {
    const { ledger, faults } = this.#parts;
    const script = ledger.objects.get(ref)?.script;
    if (script?.destroyHangs !== true || faults.healed) return false;
    script.destroyHangs = false;
    return true;
  }

  async close(): Promise<void> {
    this.#listeners.clear();
  }

  /** An ordinary call, or one that fails before its effect. */
  #plan(kind?: FaultKind, error?: () => unknown, slowMs = 0): Plan {
    const { faults, random } = this.#parts;
    const ms = slowMs + random.between(0, 8);
    if (kind !== undefined && faults.hits(kind))
      return { effectMs: null, answerMs: slowMs + random.between(0, 400), error: error?.() };
    return { effectMs: ms, answerMs: ms };
  }

  #call<T>(what: string, plan: Plan, effect: () => T, signal: AbortSignal): Promise<T> {
    const { trace } = this.#parts;
    const told = () => {
      const result = effect();
      trace.add(this.#instance.name, what, () => (result === undefined ? "" : brief(result)));
      return result;
    };
    if (isCutOff(this.#instance, this.#parts))
      return this.#instance.calls.make(
        { ...hangs(this.#parts), effectMs: null, error: cutOff(this.name) },
        told,
        signal,
      );
    return this.#instance.calls.make(this.#late(plan), told, signal);
  }

  /** Some responses arrive outdated. */
  #late(plan: Plan): Plan {
    if (plan.effectMs === null || plan.error !== undefined) return plan;
    return this.#parts.faults.hits("engine-answer-late") ? this.#lateAnswer(plan) : plan;
  }

  #lateAnswer(plan: Plan): Plan {
    const { random, sessionLifetimeMs } = this.#parts;
    return { ...plan, answerMs: (plan.effectMs ?? 0) + random.between(sessionLifetimeMs / 2, 2 * sessionLifetimeMs) };
  }

  #tellDeath({ ref, labels }: SimObject): void {
    const { faults, random, scheduler, fleetId, partitions } = this.#parts;
    if (this.#listeners.size === 0 || labels.fleet !== fleetId || faults.hits("engine-event-lost")) return;
    if (partitions.isCut(this.#instance.host, "engine")) return;
    const event: EngineEvent = random.chance(0.15)
      ? { type: "resync" }
      : { type: "died", ref, sandboxId: labels.sandboxId };
    scheduler.after(random.between(0, 30), () => {
      this.#instance.process.deliver(() => {
        for (const listener of [...this.#listeners]) listener(event);
      });
    });
  }

  #log(what: string, detail: () => string): void {
    this.#parts.trace.add(this.#instance.name, what, detail);
  }
}

/** Whether a call to the engine is lost now. Counts it. */
export function isCutOff({ host }: Instance, { partitions, faults }: EngineParts): boolean {
  if (!partitions.isCut(host, "engine")) return false;
  faults.count(partitions.isCutForGood(host, "engine") ? "engine-unreachable" : "partition-host-engine");
  return true;
}

/** A lost call has no answer, or a late one. */
function hangs({ random }: EngineParts): Plan {
  const ms = random.between(100, 3_000);
  return { effectMs: ms, answerMs: random.chance(0.3) ? null : ms };
}

function cutOff(backend: string): SandlotError {
  return new SandlotError("create_failed", { backend, problem: "the engine is out of reach" });
}

function brief(result: unknown): string {
  if (Array.isArray(result)) return `${result.length} objects`;
  if (typeof result === "object" && result !== null && "ref" in result) return String(result.ref);
  return typeof result === "string" ? result : "";
}
