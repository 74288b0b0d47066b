/**
 * Retirement: from `stopping` to absent (rules 3, 10, 11), and the cleanup after a failed create.
 *
 *   stop ──▶ destroy what the engine has ──▶ workspace home (or purged, or restored) ──▶ remove the record
 *
 * Invariants
 * - Nothing is destroyed in the engine unless a record in `stopping` names this instance as its actor.
 * - The record is removed only after the engine confirmed that nothing is left. A failure leaves it in `stopping`, and
 *   housekeeping calls `finishStop` again: every state has a way to absent.
 * - One `finishStop` per sandbox at a time; concurrent callers share it.
 */

import {
  type EngineRef,
  type Generation,
  isSandlotError,
  type LossReason,
  type SandboxId,
  SandlotError,
  type StopReason,
} from "@sandlot/contract";
import type { Backend, WorkspaceSpot } from "../../backend/backend.ts";
import type { Budget, RestoreTarget } from "../../backend/checkpoints.ts";
import { threadKeyOf } from "../../backend/labels.ts";
import { settleWorkspace } from "../../backend/workspace-binding.ts";
import { aboutRecord } from "../../observe/about.ts";
import { type EventBus, problemOf } from "../../observe/event-bus.ts";
import type { ActingRecord, SandboxRecord, StoppingRecord } from "../../store/record.ts";
import type { StopAnswer, StopRequest, Store } from "../../store/store.ts";
import { abortable, type UnderWay, within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Membership } from "../session/membership.ts";
import { RestoreStep } from "./restore-step.ts";

export interface RetirementParts {
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly membership: Membership;
  readonly bus: EventBus;
  readonly underWay: UnderWay;
  /** Whether this instance is creating the sandbox: then its `creating` record is no leftover. */
  readonly isMaking: (sandboxId: SandboxId) => boolean;
  /** How long one engine call may take before `finishStop` gives up until next time. */
  readonly stopTimeoutMs: number;
  /** Fires when the fleet closes. */
  readonly ending: AbortSignal;
  readonly budgetOf: (blueprint: string) => Budget | null;
  /** Removes what is kept of a thread beside its workspace. Repeating it is safe. */
  readonly forget: (spot: WorkspaceSpot) => Promise<void>;
}

/** Objects that a failed or cancelled create may have left in the engine. */
export type Leftover = Pick<
  SandboxRecord,
  "sandboxId" | "user" | "thread" | "generation" | "token" | "backend" | "engine" | "blueprint" | "blueprintHash"
> & { readonly ref: EngineRef | null };

/** How often `finishStop` starts over because the record changed meanwhile (a purge was added). */
const REREAD_MAX = 5;

export class Retirement {
  readonly restores: RestoreStep;
  readonly #parts: RetirementParts;
  readonly #stopping = new Map<SandboxId, Promise<boolean>>();
  /** The last failure of each stop, and the number of attempts. */
  readonly #failures = new Map<SandboxId, { readonly attempt: number; readonly error: unknown }>();
  readonly #leftovers = new Map<SandboxId, Leftover>();
  readonly #unmaking = new Map<SandboxId, Promise<void>>();

  constructor(parts: RetirementParts) {
    this.#parts = parts;
    this.restores = new RestoreStep({ ...parts, quietMs: parts.stopTimeoutMs });
  }

  isFinishingStop(sandboxId: SandboxId): boolean {
    return this.#stopping.has(sandboxId);
  }

  /** `acting` are all records that any instance is making or stopping. Failures of other sandboxes are forgotten. */
  stillActing(acting: ReadonlySet<SandboxId>): void {
    for (const sandboxId of this.#failures.keys()) if (!acting.has(sandboxId)) this.#failures.delete(sandboxId);
  }

  /** How many sandboxes have failed to stop and still exist. */
  get failureCount(): number {
    return this.#failures.size;
  }

  /** Resolves when no stop or cleanup is pending, for a closing fleet. */
  async idle(): Promise<void> {
    while (this.#stopping.size + this.#unmaking.size > 0)
      await Promise.allSettled([...this.#stopping.values(), ...this.#unmaking.values()]);
  }

  /** Moves a record to `stopping` and, if this instance did, starts `finishStop`. */
  stop(request: Omit<StopRequest, "actor">): Promise<StopAnswer> {
    return this.#parts.underWay.add(this.#stop(request));
  }

  async #stop(request: Omit<StopRequest, "actor">): Promise<StopAnswer> {
    const { store, membership, bus } = this.#parts;
    const answer = await store.stop({ ...request, actor: membership.instance });
    if (answer.kind === "unknown-session") await membership.renew();
    if (answer.kind === "stopping") {
      const { reason } = answer.record;
      membership.ended(answer.record, lossBy(reason));
      bus.emit({ type: "sandbox-stopping", reason, ...aboutRecord(answer.record) });
      void this.finishStop(answer.record);
    }
    return answer;
  }

  stopUnheld(record: SandboxRecord, reason: StopReason): Promise<StopAnswer> {
    const { sandboxId, generation, revision, createdAt } = record;
    return this.stop({ sandboxId, generation, reason, purge: false, mode: { kind: "unheld", revision, createdAt } });
  }

  /** The engine reports that this generation is dead. */
  stopDead(record: { sandboxId: SandboxId; generation: Generation }): Promise<StopAnswer> {
    const { sandboxId, generation } = record;
    return this.stop({ sandboxId, generation, reason: "crashed", purge: false, mode: { kind: "dead" } });
  }

  /** Notes that a sandbox in `creating` ends as soon as it is made. True when the store has recorded the note. */
  async cancel({ sandboxId, generation }: SandboxRecord, purge: boolean): Promise<boolean> {
    const answer = await this.stop({ sandboxId, generation, reason: "destroyed", purge, mode: { kind: "cancel" } });
    return answer.kind === "noted";
  }

  /** Finishes a stop of this instance. True when the record is gone, false when to try again. Never rejects. */
  finishStop(record: StoppingRecord): Promise<boolean> {
    const { sandboxId } = record;
    const driving = this.#stopping.get(sandboxId);
    if (driving !== undefined) return driving;
    const drive = this.#drive(record).finally(() => this.#stopping.delete(sandboxId));
    this.#stopping.set(sandboxId, drive);
    return drive;
  }

  /**
   * Advances a record in `creating` or `stopping` that a caller waits for: finishes our own, takes over a dead
   * instance's. False when the caller can only wait for the actor.
   */
  async help(record: ActingRecord, signal: AbortSignal): Promise<boolean> {
    const { store, membership } = this.#parts;
    const { sandboxId, revision, actor } = record;
    const ours = actor === membership.instance;
    if (ours && record.state === "creating") {
      if (this.#parts.isMaking(sandboxId)) return false;
      await abortable(this.unmake(record), signal);
      return true;
    }
    const stopping =
      ours && record.state === "stopping"
        ? record
        : await store.takeOver({ sandboxId, revision, actor: membership.instance });
    if (stopping === null) return false;
    if (await abortable(this.finishStop(stopping), signal)) return true;
    const error = this.#failures.get(sandboxId)?.error;
    // Waiting would not help: a person must look at the two workspaces.
    if (isSandlotError(error, "workspace_conflict")) throw error;
    return false;
  }

  /** Removes exactly what a create of ours may have made. Housekeeping tries again until that is certain. */
  async unmake(leftover: Leftover): Promise<void> {
    this.#leftovers.set(leftover.sandboxId, leftover);
    await this.#unmakeInTurn(leftover);
  }

  /** Tries failed cleanups again. */
  async retryLeftovers(): Promise<void> {
    const idle = [...this.#leftovers.values()].filter(({ sandboxId }) => !this.#unmaking.has(sandboxId));
    await Promise.all(idle.map((leftover) => this.#unmakeInTurn(leftover)));
  }

  /** One at a time per sandbox. A later caller looks again: the create may have landed since. */
  #unmakeInTurn(leftover: Leftover): Promise<void> {
    const { sandboxId } = leftover;
    const before = this.#unmaking.get(sandboxId) ?? Promise.resolve();
    const turn = before.then(() => this.#unmake(leftover));
    this.#unmaking.set(sandboxId, turn);
    return turn.finally(() => {
      if (this.#unmaking.get(sandboxId) === turn) this.#unmaking.delete(sandboxId);
    });
  }

  async #drive(first: StoppingRecord): Promise<boolean> {
    const { world, store, membership, bus } = this.#parts;
    const startedAt = world.monotonicMs();
    try {
      for (let reread = 0; reread < REREAD_MAX; reread += 1) {
        await membership.validate();
        const { term } = membership;
        const found = await store.get(first.sandboxId);
        if (found === null || found.state !== "stopping" || found.actor !== membership.instance) return true;
        const record = await this.#takeAgain(found);
        if (record === null) continue;
        await this.#clear(record, term);
        const { sandboxId, revision, actor, reason, blueprint } = record;
        if (!(await store.remove({ sandboxId, revision, actor }))) continue;
        this.#failures.delete(sandboxId);
        const durationMs = world.monotonicMs() - startedAt;
        bus.emit({ type: "sandbox-stopped", reason, durationMs, blueprint, ...aboutRecord(record) });
        return true;
      }
      return false;
    } catch (error) {
      const attempt = (this.#failures.get(first.sandboxId)?.attempt ?? 0) + 1;
      this.#failures.set(first.sandboxId, { attempt, error });
      bus.emit({ type: "sandbox-stop-failed", problem: problemOf(error), attempt, ...aboutRecord(first) });
      return false;
    }
  }

  /**
   * A removal that failed may still take effect. After it, the record would be gone while objects that landed meanwhile
   * are being cleared, so another attempt raises the revision first. `null`: the record has changed since.
   */
  async #takeAgain(record: StoppingRecord): Promise<StoppingRecord | null> {
    const { sandboxId, revision, actor } = record;
    return this.#failures.has(sandboxId) ? this.#parts.store.takeOver({ sandboxId, revision, actor }) : record;
  }

  /** Removes everything of the sandbox from the engine, and puts its workspace where it belongs. */
  async #clear(record: StoppingRecord, term: number): Promise<void> {
    const { backend } = this.#parts;
    const { sandboxId } = record;
    const refs = new Set<EngineRef>(record.ref === null ? [] : [record.ref]);
    if (record.ref === null) {
      // The create was never confirmed, so only the engine knows what it made.
      const objects = await this.#askAsActor(sandboxId, term, "list it", (signal) =>
        backend.list({ consistent: true, sandboxId }, signal),
      );
      for (const object of objects) if (object.labels.sandboxId === sandboxId) refs.add(object.ref);
    }
    for (const ref of refs)
      await this.#askAsActor(sandboxId, term, "destroy it", (signal) => backend.destroy(ref, signal));
    const spot = spotOf(record);
    if (spot !== null) {
      await this.#askAsActor(sandboxId, term, "settle its workspace", () =>
        settleWorkspace(backend.workspaces, spot, record.purge, record.emptyHome),
      );
      if (record.purge) await this.#askAsActor(sandboxId, term, "remove its timeline", () => this.#parts.forget(spot));
      if (record.restore !== undefined && !record.purge) await this.#restore(record, record.restore, spot, term);
    } else if (record.place !== "home") await this.#setAside(record, term);
  }

  async #restore(record: StoppingRecord, target: RestoreTarget, spot: WorkspaceSpot, term: number): Promise<void> {
    const { sandboxId, blueprint } = record;
    await this.#endLeftovers(record, spot, term);
    this.#checkActor(sandboxId, term, "restore its workspace");
    await this.restores.run(spot, target, blueprint, () => this.#isActor(term));
    this.#checkActor(sandboxId, term, "restore its workspace");
  }

  /**
   * A create that was given up may have landed since: its sandbox has the workspace mounted, and no record. The
   * reconciler would remove it after its grace; a restore cannot wait for that. An older generation goes at once (rule 3).
   */
  async #endLeftovers({ sandboxId, generation }: StoppingRecord, spot: WorkspaceSpot, term: number): Promise<void> {
    const { backend } = this.#parts;
    const key = threadKeyOf(spot.user, spot.thread);
    const objects = await this.#askAsActor(sandboxId, term, "list the thread's leftovers", (signal) =>
      backend.list({ consistent: true }, signal),
    );
    for (const { ref, labels } of objects)
      if (labels.threadKey === key && labels.sandboxId !== sandboxId && labels.generation < generation)
        await this.#askAsActor(sandboxId, term, "end a leftover", (signal) => backend.destroy(ref, signal));
  }

  /**
   * A record without a thread has no right to a workspace. If its slot has one, and the thread goes on without it (on
   * another engine, or in a later sandbox), the workspace is kept for a person.
   */
  async #setAside({ sandboxId, place, engine }: StoppingRecord, term: number): Promise<void> {
    const { backend, store } = this.#parts;
    const { workspaces, markers } = backend;
    for (const marker of await this.#askAsActor(sandboxId, term, "look at its markers", () =>
      markers.list(sandboxId),
    )) {
      const { user, thread } = marker;
      const spot = { ...marker, place };
      const { slot, stale } = await this.#askAsActor(sandboxId, term, "look at its slot", () => workspaces.look(spot));
      if (!slot) continue;
      if (!stale && (await store.locate({ user, thread, engines: [engine] })).elsewhere === null) continue;
      await this.#askAsActor(sandboxId, term, "set its workspace aside", () => workspaces.quarantine(spot));
    }
  }

  /** After a pause this instance may no longer be the actor, so it checks before it calls the engine. */
  #askAsActor<T>(
    sandboxId: SandboxId,
    term: number,
    step: string,
    ask: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    try {
      this.#checkActor(sandboxId, term, step);
    } catch (error) {
      return Promise.reject(error);
    }
    return this.#ask(sandboxId, step, ask);
  }

  #checkActor(sandboxId: SandboxId, term: number, step: string): void {
    if (this.#isActor(term)) return;
    const problem = `it is not certain that this instance is still the one to ${step}`;
    throw new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: 1_000 });
  }

  #isActor(term: number): boolean {
    const { membership } = this.#parts;
    return membership.trusted() && membership.term === term;
  }

  #ask<T>(sandboxId: SandboxId, step: string, ask: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { world, stopTimeoutMs } = this.#parts;
    const problem = `the engine took over ${stopTimeoutMs} ms to ${step}`;
    const late = () => new SandlotError("sandbox_unreachable", { sandboxId, problem, retryAfterMs: stopTimeoutMs });
    return within(world, stopTimeoutMs, undefined, late, ask);
  }

  async #unmake(leftover: Leftover): Promise<void> {
    const { membership, bus } = this.#parts;
    const { sandboxId, generation } = leftover;
    try {
      await membership.validate();
      const answer = await this.stop({
        sandboxId,
        generation,
        reason: "create-failed",
        purge: false,
        mode: { kind: "abandon" },
      });
      if (answer.kind === "unknown-session" || answer.kind === "noted") return;
      if (answer.kind === "stopping") await this.finishStop(answer.record);
      else if (answer.record === null) await this.#claimForRemoval(leftover);
      // Another instance is ending it. Objects that land after its look are still ours to remove, so look again later.
      else if (answer.record.state === "stopping" && answer.record.actor !== membership.instance) return;
      this.#leftovers.delete(sandboxId);
    } catch (error) {
      bus.emit({ type: "housekeeping-failed", task: "unmake", problem: problemOf(error) });
    }
  }

  /** No record exists any more: another instance took over and found nothing, but our create may have landed since. */
  async #claimForRemoval(leftover: Leftover): Promise<void> {
    const { store, backend, membership } = this.#parts;
    const { sandboxId, user, thread } = leftover;
    const key = user === null || thread === null ? null : { user, thread };
    const objects = await this.#ask(sandboxId, "list it", (signal) =>
      backend.list({ consistent: true, sandboxId }, signal),
    );
    const object = objects.find(({ labels }) => labels.sandboxId === sandboxId);
    if (object === undefined) return;
    // A bound sandbox was published after all. It belongs to its thread and is no leftover of ours.
    const markers = await backend.markers.list(sandboxId);
    if (markers.some((marker) => marker.generation > leftover.generation)) return;
    const { ref, place } = object;
    const record = await store.claimForRemoval({ ...leftover, ref, place, key, actor: membership.instance });
    if (record !== null) await this.finishStop(record);
  }
}

/** The loss reason for our own leases after our own stop. A planned stop ends only what no instance holds. */
function lossBy(reason: StopReason): LossReason {
  return reason === "destroyed" || reason === "restored" || reason === "crashed" ? reason : "session-lost";
}

/** Where a record's workspace is; `null` when it has none. */
export function spotOf(record: SandboxRecord): WorkspaceSpot | null {
  const { user, thread, sandboxId, generation, place } = record;
  return user === null || thread === null ? null : { user, thread, sandboxId, generation, place };
}
