/**
 * Destroys on request (rules 10 and 11). Refuses a held sandbox unless forced. Answers in bounded time, whatever the
 * engine does. With `purge` the workspace goes while the thread cannot be acquired; with `emptyHome` the content of its
 * home does; with `restore` the workspace becomes that of a checkpoint.
 */

import {
  type Epoch,
  parseThreadId,
  type SandboxId,
  SandlotError,
  type ThreadId,
  type Token,
  type UserId,
} from "@sandlot/contract";
import type { Backend } from "../../backend/backend.ts";
import type { RestoreTarget } from "../../backend/checkpoints.ts";
import { hasHome } from "../../backend/workspace-binding.ts";
import { blueprintNamed } from "../../config/blueprint-named.ts";
import { parseDelay, parseUser } from "../../config/call-options.ts";
import type { Settings } from "../../config/settings.ts";
import type { DestroyOptions, DestroyOutcome, ResetHomeOptions, ThreadKeyInput } from "../../fleet.ts";
import type { Changes } from "../../store/changes.ts";
import type { SandboxRecord } from "../../store/record.ts";
import type { Store, StoreMeta, ThreadPlace } from "../../store/store.ts";
import { within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Membership } from "../session/membership.ts";
import { throwIfElsewhere, throwIfRecovering } from "../session/refusals.ts";
import type { Retirement } from "./retirement.ts";

export interface DestroyerParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly changes: Changes;
  readonly membership: Membership;
  readonly backend: Backend;
  readonly retirement: Retirement;
  /** Ends the sessions of dead instances. Returns whether there were any. */
  readonly endDeadSessions: () => Promise<boolean>;
}

/** How a sandbox ends, and what of its workspace goes. */
type Ending = DestroyOptions & { readonly emptyHome?: boolean; readonly restore?: RestoreTarget };

type Key = { readonly user: UserId; readonly thread: ThreadId };

/** The deadline passed. */
class Late extends Error {}

/** The progress of a call, for its answer at the deadline. */
interface Progress {
  /** The store has recorded the whole request: some instance will carry it out. */
  promised: boolean;
  /** The record at the last look; `undefined` before the first. */
  seen: SandboxRecord | null | undefined;
}

export class Destroyer {
  readonly #parts: DestroyerParts;
  readonly #closing = new AbortController();

  constructor(parts: DestroyerParts) {
    this.#parts = parts;
  }

  /** Rejects waiting callers; stops that the store has recorded still finish. */
  close(): void {
    this.#closing.abort(new SandlotError("fleet_closed", { operation: "destroy" }));
  }

  async destroy(input: ThreadKeyInput, options: DestroyOptions = {}): Promise<DestroyOutcome> {
    const key = { user: parseUser(input.user), thread: parseThreadId(input.thread) };
    return this.#bounded(options, (signal, progress) => this.#destroy(key, options, signal, progress));
  }

  /** Ends the thread's sandbox and empties its home. `absent`: it has no files. */
  async resetHome(input: ThreadKeyInput, options: ResetHomeOptions = {}): Promise<DestroyOutcome> {
    const { backend } = this.#parts;
    const key = { user: parseUser(input.user), thread: parseThreadId(input.thread) };
    if (backend.workspaces.emptyHome === undefined) {
      const neededBy = "emptying a home";
      throw new SandlotError("capability_missing", { backend: backend.name, capability: "kept-home", neededBy });
    }
    const ending = { ...options, emptyHome: true };
    return this.#bounded(ending, (signal, progress) => this.#destroy(key, ending, signal, progress));
  }

  /**
   * Ends the thread's sandbox and changes its workspace to a checkpoint. `stopping`: the store has recorded it, but it is
   * not complete. The backend may refuse it on the way: its outcome tells.
   */
  restore(key: Key, restore: RestoreTarget, options: ResetHomeOptions): Promise<DestroyOutcome> {
    const ending = { ...options, restore };
    return this.#bounded(ending, (signal, progress) => this.#destroy(key, ending, signal, progress));
  }

  /** A blank that was bound meanwhile belongs to a thread, and stays. */
  destroyBlank(sandboxId: SandboxId, options: DestroyOptions = {}): Promise<DestroyOutcome> {
    return this.#bounded(options, (signal, progress) => this.#destroyBlank(sandboxId, signal, progress));
  }

  /** Answers in time, whatever the engine does: `stopping` only if the store has recorded the stop. */
  async #bounded(
    options: DestroyOptions,
    work: (signal: AbortSignal, progress: Progress) => Promise<DestroyOutcome>,
  ): Promise<DestroyOutcome> {
    const { settings, world, changes } = this.#parts;
    const timeoutMs = parseDelay("timeoutMs", options.timeoutMs ?? settings.stopTimeoutMs);
    const progress: Progress = { promised: false, seen: undefined };
    try {
      const outer =
        options.signal === undefined ? this.#closing.signal : AbortSignal.any([options.signal, this.#closing.signal]);
      return await within(
        world,
        timeoutMs,
        outer,
        () => new Late(),
        (signal) => changes.listening(() => work(signal, progress)),
      );
    } catch (error) {
      if (!(error instanceof Late)) throw error;
      if (progress.promised) return "stopping";
      throw undone(progress.seen, timeoutMs);
    }
  }

  async #destroyBlank(sandboxId: SandboxId, signal: AbortSignal, progress: Progress): Promise<DestroyOutcome> {
    const { store, changes, membership, retirement, backend } = this.#parts;
    let recovered: Epoch | null = null;
    for (let rounds = 0; ; rounds += 1) {
      signal.throwIfAborted();
      await membership.validate();
      const count = changes.count();
      const record = await store.get(sandboxId);
      signal.throwIfAborted();
      progress.seen = record;
      if (record === null) {
        const epoch = this.#truthOf(await store.meta(backend.engineId), signal);
        if (epoch === recovered) return progress.promised ? "stopped" : "absent";
        recovered = epoch;
        continue;
      }
      if (record.thread !== null) throw inUse(record);
      if (!membership.isOurs(record)) await this.#refuseBlank(record);
      if (record.state === "ready")
        progress.promised ||= (await retirement.stopUnheld(record, "destroyed")).kind === "stopping";
      else {
        // No caller waits for a blank, so it need not be finished first.
        progress.promised ||= record.state === "stopping" || (await retirement.cancel(record, false));
        if (await retirement.help(record, signal)) changes.hint();
      }
      await changes.after(count, signal, rounds);
    }
  }

  async #destroy(key: Key, options: Ending, signal: AbortSignal, progress: Progress): Promise<DestroyOutcome> {
    const { store, changes, membership, retirement } = this.#parts;
    const changesFiles = options.purge === true || options.emptyHome === true || options.restore !== undefined;
    /** The stop that the store recorded for this call, and its epoch. It ignores the thread's later sandboxes. */
    let ending: { readonly sandboxId: SandboxId; readonly epoch: Epoch | null } | null = null;
    /** The epoch that was known to have recovered before the last look. */
    let recovered: Epoch | null = null;
    for (let rounds = 0; ; rounds += 1) {
      signal.throwIfAborted();
      await membership.validate();
      const count = changes.count();
      const record = await store.find(key.user, key.thread);
      signal.throwIfAborted();
      progress.seen = record;
      const isOver: boolean = record === null || (ending !== null && record.sandboxId !== ending.sandboxId);
      const isTheirs = record !== null && !membership.isOurs(record);
      // What this call has ended is over, wherever the thread lives now.
      const place: ThreadPlace | null = isOver || isTheirs ? await this.#locate(key, ending === null, signal) : null;
      const epoch: Epoch | null = place === null ? membership.epoch : this.#truthOf(place, signal);
      if (isOver && epoch !== recovered) {
        // The look may be older than the recovery, however late its response came: look again.
        recovered = epoch;
        continue;
      }
      if (isOver && ending !== null && ending.epoch === epoch) return "stopped";
      // A new store does not know the requests to its predecessor.
      if (isOver) ending = null;
      if (record === null) {
        if (!changesFiles) return "absent";
        // What has checkpoints may have lost its files.
        if (options.restore === undefined && !(await hasHome(this.#parts.backend.workspaces, key))) return "absent";
        const sandboxId = await this.#claim(key, options, epoch, signal);
        if (sandboxId !== null) ending = { sandboxId, epoch };
      } else if (record.state === "ready") {
        if (await this.#stop(record, options)) ending = { sandboxId: record.sandboxId, epoch };
      } else if (ending === null && (await this.#joins(record, options))) {
        ending = { sandboxId: record.sandboxId, epoch };
      }
      progress.promised = ending !== null;
      if (record !== null && record.state !== "ready" && (await retirement.help(record, signal))) changes.hint();
      await changes.after(count, signal, rounds);
    }
  }

  /** Refuses a thread of an engine that this instance does not reach. */
  async #locate({ user, thread }: Key, refuse: boolean, signal: AbortSignal): Promise<ThreadPlace> {
    const { store, backend, settings } = this.#parts;
    const place = await store.locate({ user, thread, engines: [backend.engineId] });
    signal.throwIfAborted();
    if (refuse) throwIfElsewhere(place.elsewhere, thread, settings.sessionLifetimeMs);
    return place;
  }

  async #refuseBlank({ engine }: SandboxRecord): Promise<void> {
    const { store, settings } = this.#parts;
    const there = (await store.sessions()).filter(({ engines }) => engines.includes(engine));
    const gateways = there.flatMap(({ address }) => address ?? []);
    const elsewhere = { kind: "elsewhere", engine, gateways, isReachable: there.length > 0 } as const;
    throwIfElsewhere(elsewhere, null, settings.sessionLifetimeMs);
  }

  /**
   * The epoch in which something was not found. Read before the look and after it: a store that was lost does not know
   * yet what exists, and this instance may not know of the loss.
   */
  #truthOf({ epoch, recovering }: StoreMeta, signal: AbortSignal): Epoch {
    const { membership, settings } = this.#parts;
    signal.throwIfAborted();
    const isLost = recovering || epoch !== membership.epoch;
    throwIfRecovering({ kind: isLost ? "recovering" : "", epoch }, settings.sessionLifetimeMs);
    return epoch;
  }

  /**
   * Whether another instance's work on the record covers this request. A stopping record takes on a purge. A creating
   * record takes a note of its end only by force, because its callers wait for it. Neither takes on an emptied home or a
   * restore: an earlier version may carry it out, and would not know of it. The thread is claimed when the record is gone.
   */
  async #joins(record: SandboxRecord, { force, purge = false, emptyHome = false, restore }: Ending): Promise<boolean> {
    const needsOwn = emptyHome || restore !== undefined;
    if (record.state === "stopping") return !needsOwn && (!purge || (await this.#addPurge(record)));
    return force === true && (await this.#parts.retirement.cancel(record, purge)) && !needsOwn;
  }

  /** False when the record changed meanwhile. */
  async #stop(record: SandboxRecord, { force, purge = false, emptyHome = false, restore }: Ending): Promise<boolean> {
    const { retirement, endDeadSessions, changes } = this.#parts;
    const { sandboxId, generation, revision, createdAt } = record;
    const mode = force === true ? ({ kind: "force" } as const) : ({ kind: "unheld", revision, createdAt } as const);
    const reason = restore === undefined ? "destroyed" : "restored";
    const request = { sandboxId, generation, reason, purge, emptyHome, mode } as const;
    const answer = await retirement.stop({ ...request, ...(restore !== undefined && { restore }) });
    if (answer.kind === "held") {
      // A holder that was killed a moment ago holds nothing, but its session may still exist.
      if (!(await endDeadSessions())) throw inUse(answer.record);
      changes.hint();
    }
    return answer.kind === "stopping";
  }

  /** The sandbox is already ending for another reason: add the purge of the workspace. */
  async #addPurge({ sandboxId, generation }: SandboxRecord): Promise<boolean> {
    const { retirement } = this.#parts;
    const answer = await retirement.stop({
      sandboxId,
      generation,
      reason: "destroyed",
      purge: true,
      mode: { kind: "force" },
    });
    return answer.kind === "lost" && answer.record?.purge === true;
  }

  /** No sandbox, but a workspace: claim the thread, so that it cannot be acquired while files of it go. */
  async #claim(
    key: Key,
    { purge = false, emptyHome = false, restore }: Ending,
    epoch: Epoch | null,
    signal: AbortSignal,
  ): Promise<SandboxId | null> {
    const { store, world, backend, retirement, settings, membership } = this.#parts;
    const { name: blueprint, hash: blueprintHash } = blueprintNamed(settings, "default");
    signal.throwIfAborted();
    const record = await store.claimForRemoval({
      ...{ key, blueprint, blueprintHash, purge, emptyHome, ref: null, place: "home", generation: null },
      ...(restore !== undefined && { restore }),
      ...(epoch === null ? {} : { epoch }),
      sandboxId: world.randomHex(10) as SandboxId,
      token: world.randomHex(24) as Token,
      ...{ backend: backend.name, engine: backend.engineId },
      actor: membership.instance,
    });
    if (record === null) return null;
    membership.sawGeneration(record.generation);
    void retirement.finishStop(record);
    return record.sandboxId;
  }
}

function inUse({ sandboxId, holders, leases }: SandboxRecord): SandlotError {
  return new SandlotError("sandbox_in_use", { sandboxId, holders: [...Object.keys(holders), ...Object.keys(leases)] });
}

/** The deadline passed before the store recorded the request: the caller must try again. */
function undone(seen: SandboxRecord | null | undefined, timeoutMs: number): SandlotError {
  if (seen === null || seen === undefined || seen.state === "stopping") {
    const problem = `it did not take the request within ${timeoutMs} ms`;
    return new SandlotError("store_unavailable", { operation: "destroy", problem, retryAfterMs: 1_000 });
  }
  const { sandboxId, actor, holders, leases } = seen;
  const users = [...(actor === null ? [] : [actor]), ...Object.keys(holders), ...Object.keys(leases)];
  return new SandlotError("sandbox_in_use", { sandboxId, holders: users.length > 0 ? users : ["callers in turn"] });
}
