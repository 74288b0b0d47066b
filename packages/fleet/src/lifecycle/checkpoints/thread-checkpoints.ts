/**
 * `fleet.checkpoints`: the calls of people and programs on a thread's checkpoints.
 *
 * Invariants
 * - Every call has a deadline and can be cancelled. A restore that the store has recorded goes on nevertheless, and its
 *   request finds its result later.
 * - A restore is looked at by the backend before anything is stopped.
 * - A thread is seeded under a claim of its key: no acquire succeeds before its files are complete.
 * - A thread of another engine is refused with the gateways to ask: its files are there.
 */

import {
  type Checkpoint,
  type CheckpointDiff,
  parseThreadId,
  type SandboxId,
  SandlotError,
  type ThreadId,
  type Token,
  type UserId,
} from "@sandlot/contract";
import type { Backend } from "../../backend/backend.ts";
import type {
  CheckpointProgress,
  Checkpoints,
  LongCall,
  RestoreTarget,
  Seeded,
  SeedSource,
  TakeOptions,
  WorkspaceOwner,
} from "../../backend/checkpoints.ts";
import { blueprintNamed } from "../../config/blueprint-named.ts";
import { parseDelay, parseUser } from "../../config/call-options.ts";
import { checkpointsOf } from "../../config/checkpoints-of.ts";
import { DEFAULT_BLUEPRINT } from "../../config/defaults.ts";
import { diskBudget } from "../../config/disk-budget.ts";
import type { Settings } from "../../config/settings.ts";
import type {
  AcquireRequest,
  CheckpointCall,
  DiffOptions,
  FleetCheckpoints,
  ForkOptions,
  RestoredCheckpoint,
  RestoreOptions,
  SeedInput,
  TakeCheckpointOptions,
  TakenCheckpoint,
  ThreadKeyInput,
  VerifiedCheckpoints,
} from "../../fleet.ts";
import type { EventBus } from "../../observe/event-bus.ts";
import type { SandboxRecord } from "../../store/record.ts";
import type { Store } from "../../store/store.ts";
import { within } from "../../world/waiting.ts";
import type { World } from "../../world/world.ts";
import type { Membership } from "../session/membership.ts";
import { throwIfElsewhere } from "../session/refusals.ts";
import type { Destroyer } from "../stop/destroyer.ts";
import { progressTeller } from "../stop/restore-step.ts";
import type { Retirement } from "../stop/retirement.ts";
import { Quiescence } from "./quiesced.ts";
import { diffOf } from "./thread-diff.ts";

export interface ThreadCheckpointsParts {
  readonly settings: Settings;
  readonly world: World;
  readonly store: Store;
  readonly backend: Backend;
  readonly bus: EventBus;
  readonly membership: Membership;
  readonly retirement: Retirement;
  /** Tells the timelines of both threads of a fork. */
  readonly onForked: (from: WorkspaceOwner, to: WorkspaceOwner) => void;
  /** Ends the thread's sandbox and restores its workspace (`Destroyer.restore`). */
  readonly restore: Destroyer["restore"];
  /** Fires when the fleet closes. */
  readonly ending: AbortSignal;
}

const LABEL_MAX_CHARS = 200;
/** How soon a caller may ask again for a restore that goes on. */
const RETRY_AFTER_MS = 2_000;

export class ThreadCheckpoints implements FleetCheckpoints {
  readonly #parts: ThreadCheckpointsParts;
  readonly #quiescence: Quiescence;

  constructor(parts: ThreadCheckpointsParts) {
    this.#parts = parts;
    this.#quiescence = new Quiescence(parts.backend);
  }

  async list(key: ThreadKeyInput): Promise<readonly Checkpoint[]> {
    const { owner, checkpoints } = await this.#of(key, "listing checkpoints");
    return checkpoints.list(owner);
  }

  async find(key: ThreadKeyInput, checkpoint: string): Promise<Checkpoint> {
    const { owner, checkpoints } = await this.#of(key, "looking at a checkpoint");
    return checkpoints.find(owner, checkpoint);
  }

  take(key: ThreadKeyInput, options: TakeCheckpointOptions = {}): Promise<TakenCheckpoint> {
    return this.#call(key, options, async (call) => {
      const { owner, checkpoints } = await this.#of(key, "taking a checkpoint");
      const label = options.label === undefined ? {} : { label: parseLabel(options.label) };
      const record = await this.#parts.store.find(owner.user, owner.thread);
      const how = { ...call, ...label, cause: "requested", ...(options.verify === true && { verify: true }) } as const;
      const take = (writers: "live" | "frozen") => this.#take(checkpoints, owner, record, { ...how, writers });
      if (options.quiesce !== true) return take("live");
      const remove = ({ checkpoint }: TakenCheckpoint) => checkpoints.remove(owner, checkpoint.id);
      return this.#quiescence.taken(record, call.signal, () => take("frozen"), remove);
    });
  }

  diff(key: ThreadKeyInput, options: DiffOptions = {}): Promise<CheckpointDiff> {
    return this.#call(key, options, async (call) => {
      const { owner, checkpoints } = await this.#of(key, "a diff");
      return diffOf(checkpoints, owner, options, call);
    });
  }

  restore(key: ThreadKeyInput, checkpoint: string, options: RestoreOptions = {}): Promise<RestoredCheckpoint> {
    return this.#call(key, options, async (call) => {
      const { owner, checkpoints } = await this.#of(key, "restoring a checkpoint");
      const { id } = await checkpoints.find(owner, checkpoint);
      return this.#restore(checkpoints, owner, { checkpoint: id, as: "restore" }, options, call);
    });
  }

  undo(key: ThreadKeyInput, options: RestoreOptions = {}): Promise<RestoredCheckpoint> {
    return this.#step(key, "undo", options);
  }

  redo(key: ThreadKeyInput, options: RestoreOptions = {}): Promise<RestoredCheckpoint> {
    return this.#step(key, "redo", options);
  }

  async fork(key: ThreadKeyInput, to: string, options: ForkOptions = {}): Promise<Seeded> {
    const { thread, user } = key;
    const { checkpoint } = options;
    return this.seed(
      { thread: to, ...(user !== undefined && { user }) },
      { thread, ...(checkpoint !== undefined && { checkpoint }) },
      options,
    );
  }

  seed(to: ThreadKeyInput, from: SeedInput, options: CheckpointCall = {}): Promise<Seeded> {
    return this.#seed(to, from, options, DEFAULT_BLUEPRINT);
  }

  #seed(to: ThreadKeyInput, from: SeedInput, options: CheckpointCall, blueprint: string): Promise<Seeded> {
    return this.#call(to, options, async (call) => {
      const { settings, retirement } = this.#parts;
      const owner = ownerOf(to);
      const checkpoints = this.#offered("seeding a thread");
      const source = await this.#sourceOf(from, owner.user);
      const budget = diskBudget(settings.blueprints, blueprint);
      const claim = await this.#claim(owner);
      try {
        const seeded = await checkpoints.seed(source, owner, budget, call);
        if ("owner" in source) this.#parts.onForked(source.owner, owner);
        return seeded;
      } finally {
        await retirement.finishStop(claim);
      }
    });
  }

  async remove(key: ThreadKeyInput, checkpoint: string): Promise<void> {
    const { owner, checkpoints } = await this.#of(key, "removing a checkpoint");
    const { id } = await checkpoints.find(owner, checkpoint);
    await checkpoints.remove(owner, id);
  }

  verify(
    key: ThreadKeyInput,
    options: CheckpointCall & { readonly checkpoint?: string } = {},
  ): Promise<VerifiedCheckpoints> {
    return this.#call(key, options, async (call) => {
      const { owner, checkpoints } = await this.#of(key, "verifying checkpoints");
      return checkpoints.verify(owner, options.checkpoint ?? null, call);
    });
  }

  /** Fails before the first byte where the checkpoint does not exist. */
  async *export(key: ThreadKeyInput, checkpoint: string, options: CheckpointCall = {}): AsyncIterable<Uint8Array> {
    const { owner, checkpoints } = await this.#of(key, "exporting a checkpoint");
    const { id } = await checkpoints.find(owner, checkpoint);
    const { ending } = this.#parts;
    const signal = options.signal === undefined ? ending : AbortSignal.any([options.signal, ending]);
    yield* checkpoints.export(owner, id, { signal, ...this.#reporting(key, options) });
  }

  /** The seed of an acquire, before it. */
  async seedFor(request: AcquireRequest): Promise<void> {
    const { user, thread, from, blueprint = DEFAULT_BLUEPRINT, signal, timeoutMs } = request;
    if (from === undefined) return;
    const to = { thread: parseThreadId(thread), ...(user !== undefined && { user }) };
    const limits = { ...(signal !== undefined && { signal }), ...(timeoutMs !== undefined && { timeoutMs }) };
    await this.#seed(to, from, limits, blueprintNamed(this.#parts.settings, blueprint).name);
  }

  /** A checkpoint that no caller asked for. `null`: nothing had changed. */
  async takeQuietly(owner: WorkspaceOwner, signal: AbortSignal): Promise<Checkpoint | null> {
    const checkpoints = this.#offered("an automatic checkpoint");
    const record = await this.#parts.store.find(owner.user, owner.thread);
    const taking = { signal, cause: "automatic", writers: "live" } as const;
    const startedAt = this.#parts.world.monotonicMs();
    const taken = await checkpoints.take(owner, { ...taking, ...this.#userOf(record) });
    if (taken.kind !== "taken") return null;
    this.#tell(owner, taken.checkpoint, startedAt);
    return taken.checkpoint;
  }

  // ── Steps ──────────────────────────────────────────────────────────────────────────────────────────────────────

  /** The present is kept first: an undo goes back from it, and a redo returns to it. */
  #step(key: ThreadKeyInput, as: "undo" | "redo", options: RestoreOptions): Promise<RestoredCheckpoint> {
    return this.#call(key, options, async (call) => {
      const { owner, checkpoints } = await this.#of(key, `${as} of a checkpoint`);
      const known = options.requestId === undefined ? null : await checkpoints.outcome(owner, options.requestId);
      if (known !== null) return known;
      const record = await this.#parts.store.find(owner.user, owner.thread);
      await this.#take(checkpoints, owner, record, { ...call, cause: "before-restore", writers: "live" });
      const { id } = await checkpoints.resolve(owner, as);
      return this.#restore(checkpoints, owner, { checkpoint: id, as }, options, call);
    });
  }

  async #restore(
    checkpoints: Checkpoints,
    owner: WorkspaceOwner,
    wanted: Pick<RestoreTarget, "checkpoint" | "as">,
    { paths, force = false, requestId = this.#parts.world.randomHex(10), ...options }: RestoreOptions,
    call: LongCall,
  ): Promise<RestoredCheckpoint> {
    const { store, settings, restore, retirement, bus } = this.#parts;
    const known = await checkpoints.outcome(owner, requestId);
    if (known !== null) return known;
    const target: RestoreTarget = { ...wanted, requestId, ...(paths !== undefined && { paths }) };
    const record = await store.find(owner.user, owner.thread);
    const budget = diskBudget(settings.blueprints, record?.blueprint ?? DEFAULT_BLUEPRINT);
    await checkpoints.check(owner, target, budget, call);
    const { signal } = call;
    const timeoutMs = this.#timeoutOf(options);
    const unfollow = bus.on((event) => {
      if (event.type !== "checkpoint-progress" || event.requestId !== requestId) return;
      const { phase, files, bytes, totalFiles } = event;
      options.onProgress?.({ phase: phase as CheckpointProgress["phase"], files, bytes, totalFiles });
    }, "checkpoint-progress");
    try {
      const outcome = await restore(owner, target, { force, signal, timeoutMs });
      const restored = outcome === "stopping" ? null : await checkpoints.outcome(owner, requestId);
      if (restored !== null) return restored;
    } finally {
      unfollow();
    }
    const refusal = retirement.restores.refusal(requestId);
    if (refusal !== undefined) throw refusal;
    // Another instance may have been refused: ask the backend for its reason.
    await checkpoints.check(owner, target, budget, call);
    const { checkpoint } = wanted;
    const about = { thread: owner.thread, checkpoint, path: "the workspace", retryAfterMs: RETRY_AFTER_MS };
    throw new SandlotError("restore_incomplete", about);
  }

  async #take(
    checkpoints: Checkpoints,
    owner: WorkspaceOwner,
    record: SandboxRecord | null,
    options: Omit<Parameters<Checkpoints["take"]>[1], "generation" | "environment">,
  ): Promise<TakenCheckpoint> {
    const startedAt = this.#parts.world.monotonicMs();
    const taken = await checkpoints.take(owner, { ...options, ...this.#userOf(record) });
    if (taken.kind === "nothing") throw new SandlotError("thread_not_found", { thread: owner.thread });
    if (taken.kind === "taken") this.#tell(owner, taken.checkpoint, startedAt);
    return { checkpoint: taken.checkpoint, isNew: taken.kind === "taken" };
  }

  /** The sandbox that uses the files, and what its blueprint keeps. */
  #userOf(record: SandboxRecord | null): Pick<TakeOptions, "generation" | "environment" | "leftOut"> {
    if (record === null) return { generation: null, environment: null };
    const { backend, settings } = this.#parts;
    const environment = backend.environmentOf?.(record.sandboxId) ?? null;
    const { leftOut } = checkpointsOf(settings, record.blueprint);
    return { generation: record.generation, environment, leftOut };
  }

  #tell({ user, thread }: WorkspaceOwner, { id, cause, addedBytes }: Checkpoint, startedAt: number): void {
    const { bus, world } = this.#parts;
    const durationMs = world.monotonicMs() - startedAt;
    bus.emit({ type: "checkpoint-taken", user, thread, checkpoint: id, cause, durationMs, addedBytes });
  }

  async #sourceOf(from: SeedInput, user: UserId): Promise<SeedSource> {
    if ("archive" in from) return { kind: "archive", content: from.archive };
    if ("directory" in from) return { kind: "directory", path: from.directory };
    const { owner, checkpoints } = await this.#of({ user, thread: from.thread }, "a fork");
    if (from.checkpoint === undefined) return { kind: "thread", owner };
    const { id } = await checkpoints.find(owner, from.checkpoint);
    return { kind: "checkpoint", owner, checkpoint: id };
  }

  /** The thread's key, so that its first acquire waits for its files. In a shared store it settles the thread here. */
  async #claim(owner: WorkspaceOwner) {
    const { store, world, backend, membership, settings } = this.#parts;
    await membership.validate();
    const { epoch } = membership;
    await this.#locate(owner);
    const { name: blueprint, hash: blueprintHash } = blueprintNamed(settings, DEFAULT_BLUEPRINT);
    const record = await store.claimForRemoval({
      ...{ key: owner, blueprint, blueprintHash, ref: null, place: "home", generation: null },
      ...(epoch === null ? {} : { epoch }),
      sandboxId: world.randomHex(10) as SandboxId,
      token: world.randomHex(24) as Token,
      ...{ backend: backend.name, engine: backend.engineId },
      actor: membership.instance,
    });
    if (record === null) throw new SandlotError("thread_exists", { thread: owner.thread });
    membership.sawGeneration(record.generation);
    if (record.thread !== null) return record;
    // The thread has a sandbox, so the claim is for nothing.
    void this.#parts.retirement.finishStop(record);
    throw new SandlotError("thread_exists", { thread: owner.thread });
  }

  async #of(key: ThreadKeyInput, neededBy: string) {
    const checkpoints = this.#offered(neededBy);
    const owner = ownerOf(key);
    await this.#locate(owner);
    return { owner, checkpoints };
  }

  async #locate({ user, thread }: WorkspaceOwner): Promise<void> {
    const { store, backend, settings } = this.#parts;
    if (!store.isShared) return;
    const place = await store.locate({ user, thread, engines: [backend.engineId] });
    throwIfElsewhere(place.elsewhere, thread, settings.sessionLifetimeMs);
  }

  #offered(neededBy: string): Checkpoints {
    const { backend } = this.#parts;
    if (backend.checkpoints !== undefined) return backend.checkpoints;
    throw new SandlotError("capability_missing", { backend: backend.name, capability: "checkpoints", neededBy });
  }

  #timeoutOf({ timeoutMs }: CheckpointCall): number {
    return parseDelay("timeoutMs", timeoutMs ?? this.#parts.settings.checkpoints.timeoutMs);
  }

  async #call<T>(key: ThreadKeyInput, options: CheckpointCall, work: (call: LongCall) => Promise<T>): Promise<T> {
    const { world, ending } = this.#parts;
    const outer = options.signal === undefined ? ending : AbortSignal.any([options.signal, ending]);
    const ms = this.#timeoutOf(options);
    const late = () => new SandlotError("checkpoint_timeout", { timeoutMs: ms, retryAfterMs: RETRY_AFTER_MS });
    return within(world, ms, outer, late, (signal) => work({ signal, ...this.#reporting(key, options) }));
  }

  /** To the caller at once; as events for callers elsewhere, where the request has a name. */
  #reporting(key: ThreadKeyInput, { onProgress, requestId }: CheckpointCall): Pick<LongCall, "onProgress"> {
    if (requestId === undefined) return onProgress === undefined ? {} : { onProgress };
    const told = progressTeller(this.#parts, { ...ownerOf(key), requestId });
    return {
      onProgress: (progress) => {
        onProgress?.(progress);
        told(progress);
      },
    };
  }
}

function ownerOf({ user, thread }: ThreadKeyInput): { readonly user: UserId; readonly thread: ThreadId } {
  return { user: parseUser(user), thread: parseThreadId(thread) };
}

function parseLabel(label: string): string {
  if (label.length > 0 && label.length <= LABEL_MAX_CHARS && !/\p{Cc}/u.test(label)) return label;
  const problem = `must have 1 to ${LABEL_MAX_CHARS} characters, and no control characters`;
  throw new SandlotError("invalid_request", { field: "label", problem });
}
