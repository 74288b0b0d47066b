/**
 * The public API of the library: a fleet, and the leases it gives.
 *
 *   await using fleet = await openFleet();
 *   await using lease = await fleet.acquire({ thread: "t1" });
 *   const result = await lease.sandbox.exec("ls");
 */

import type { Duplex } from "node:stream";
import type {
  AuditFinding,
  Checkpoint,
  CheckpointDiff,
  FleetEvent,
  FleetEventType,
  Generation,
  InstanceId,
  LeaseId,
  LossReason,
  PoolReply,
  Recovery,
  Sandbox,
  SandboxAbout,
  SandboxId,
  SandboxSummary,
  StopReason,
  ThreadId,
  ThreadSummary,
  TimelineEntry,
  TimelineKind,
  TimelineNote,
  TimelinePage,
  UsageSample,
  UserId,
} from "@sandlot/contract";
import type { Blueprint } from "./backend/blueprint.ts";
import type { CheckpointProgress, Seeded } from "./backend/checkpoints.ts";

export type { CheckpointProgress } from "./backend/checkpoints.ts";

export { ENTRIES_MAX, type SharedEntries } from "./store/entries.ts";

export interface Fleet extends AsyncDisposable {
  readonly instanceId: InstanceId;
  /** A lease on the thread's sandbox. The fleet attaches, binds or creates the sandbox. Release every lease. */
  acquire(request?: AcquireRequest): Promise<Lease>;
  /** Makes the thread's sandbox ready without taking a lease. Resolves when it is ready. */
  warm(request: WarmRequest): Promise<void>;
  /** The sandbox with this id, if this instance holds it. In memory only, never I/O. */
  get(sandboxId: SandboxId | string): Sandbox | undefined;
  /** Ends a thread's sandbox. Refused while others hold it unless forced. With `purge` the workspace goes too. */
  destroy(key: ThreadKeyInput, options?: DestroyOptions): Promise<DestroyOutcome>;
  /**
   * Empties a thread's kept home: installed programs, caches, dotfiles. Ends its sandbox, with processes and temporary
   * files, because a home never changes under one. Refused while others hold it unless forced. `absent`: the thread has
   * no files.
   */
  resetHome(key: ThreadKeyInput, options?: ResetHomeOptions): Promise<DestroyOutcome>;
  /** Ends a blank by its id, because a blank has no thread. The pool refills if it is below its target. */
  destroyBlank(
    sandboxId: SandboxId | string,
    options?: Pick<DestroyOptions, "signal" | "timeoutMs">,
  ): Promise<DestroyOutcome>;
  /** Earlier states of a thread's workspace and home. `capability_missing` where the backend keeps none. */
  readonly checkpoints: FleetCheckpoints;
  /** What happened to a thread. `capability_missing` where the configuration wants no timelines. */
  readonly timeline: FleetTimeline;
  /** What a thread's sandbox uses now, without holding it: nothing is woken, and an idle sandbox stays idle. */
  usage(key: ThreadKeyInput, options?: { readonly signal?: AbortSignal }): Promise<UsageSample>;
  list(): Promise<readonly SandboxSummary[]>;
  /**
   * The thread's sandbox in any state; `null` when it has none. A store that was lost knows no sandbox until it has
   * recovered: with `certain` that is `store_recovering`, instead of `null`.
   */
  find(key: ThreadKeyInput, options?: { readonly certain?: boolean }): Promise<SandboxSummary | null>;
  /** Every thread that has a sandbox or a workspace, by user and name. `user`: only this user's. */
  listThreads(filter?: { readonly user?: string }): Promise<readonly ThreadSummary[]>;
  /** `null` when the thread has neither a sandbox nor a workspace. Makes nothing. */
  findThread(key: ThreadKeyInput): Promise<ThreadSummary | null>;
  /**
   * Why a sandbox is alive, why it stopped, its holders and their times. Takes a sandbox id or its prefix, also of an
   * ended sandbox, or a thread (its present or last sandbox).
   */
  explain(sandbox: SandboxId | string | ThreadKeyInput, options?: ExplainOptions): Promise<Explanation>;
  /**
   * An operator's word that nothing of a sandbox runs any more, for an engine that cannot tell: its node is lost, and the
   * machine is off. Takes an id or its prefix. Refused while the sandbox answers. `by` names the person.
   */
  confirmDead(sandbox: SandboxId | string, by: string, options?: { readonly signal?: AbortSignal }): Promise<void>;
  /** Which blanks are kept ready and why, what they cost, and how often a thread got one. */
  pool(): Promise<PoolReply>;
  /** Differences between engine and store. Read-only. */
  audit(options?: { readonly signal?: AbortSignal }): Promise<readonly AuditFinding[]>;
  readonly events: FleetEvents;
  /**
   * Where a thread lives, with or without a sandbox: `here`, or nowhere yet as far as the store knows. Rejects with `thread_elsewhere` or
   * `engine_unreachable` for one on an engine that this instance does not reach. In a store of one host, always `here`.
   */
  locate(key: ThreadKeyInput): Promise<"here" | "unsettled">;
  /** The other instances that are alive in the store. */
  peers(): Promise<readonly FleetPeer[]>;
  /** Leases handed to remote callers, which any instance can renew or release. */
  readonly remoteLeases: RemoteLeases;
  /** A description of a blueprint's sandboxes, for the prompt of a model. Default `default`. */
  about(blueprint?: string): SandboxAbout;
  /** Drains, then hands over: sandboxes stay for the next instance unless `destroy` is set. Idempotent. */
  close(options?: CloseOptions): Promise<void>;
}

export interface FleetPeer {
  readonly instance: InstanceId;
  /** Where its gateway can be reached; `null`: it has none, or does not say. */
  readonly address: string | null;
  /** When its heartbeat last reached the store, by the store's clock. */
  readonly lastBeatAt: number;
  /** The engines whose sandboxes it reaches. */
  readonly engines: readonly string[];
  /** Those of them that this instance does not reach. */
  readonly otherEngines: readonly string[];
}

export interface ThreadKeyInput {
  readonly user?: string;
  readonly thread: string;
}

export interface AcquireRequest {
  readonly user?: string;
  /** Without a thread the lease gets a sandbox of its own, which ends with its last lease. */
  readonly thread?: string;
  /** Refuses a thread that has neither a sandbox nor files with `thread_not_found` instead of starting it. */
  readonly existing?: boolean;
  readonly blueprint?: string;
  /**
   * The content of a new thread's workspace: a checkpoint or the present of another thread of the same user, a tar
   * archive (plain or gzip), or a directory of this host. A thread that has files already is `thread_exists`.
   */
  readonly from?: SeedInput;
  /** The purpose in a word or two, shown in the list of holders. */
  readonly purpose?: string;
  readonly signal?: AbortSignal;
  /** Time limit for all steps together. Default `acquireTimeoutMs`. */
  readonly timeoutMs?: number;
  /**
   * Host directories for a sandbox that this acquire makes, beside those of its blueprint. One at the place of a
   * configured mount replaces that. A present sandbox with others is `blueprint_mismatch`; one that is made again after
   * a crash has the blueprint's mounts only.
   */
  readonly mounts?: Blueprint["mounts"];
  /** Makes this a remote lease: a row in the store that expires when it is not renewed for this long. */
  readonly ttlMs?: number;
}

export interface WarmRequest extends ThreadKeyInput {
  readonly blueprint?: string;
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

export interface Lease extends AsyncDisposable {
  readonly id: LeaseId;
  readonly purpose: string;
  readonly acquiredAt: number;
  /** The blueprint that the sandbox was made from. */
  readonly blueprint: string;
  /** The sandbox in its present generation. Read this property for each use: a restart replaces the object. */
  readonly sandbox: Sandbox;
  readonly generation: Generation;
  /**
   * What happened to the thread's state since its last use. `kind` is `same` (the same sandbox continues), `restored`
   * (a new sandbox with the old workspace) or `empty` (a new one with an empty workspace). `lost` and `survived` list
   * the facts to tell a model. With `restored`, `checkpoint` is the thread's newest one, and says whether files have
   * changed since.
   */
  readonly recovery: Recovery;
  /** A connection to a listening port of the sandbox. `capability_missing` if the backend has no previews. */
  connect(port: number, options?: { readonly signal?: AbortSignal }): Promise<Duplex>;
  /** A checkpoint of the workspace and the home, while the sandbox goes on. */
  checkpoint(options?: TakeCheckpointOptions): Promise<TakenCheckpoint>;
  /** Ends only this lease. Idempotent. A failing sandbox or store does not make it reject. */
  release(): Promise<void>;
  /** Calls the listener at once when the sandbox is lost. Returns an unsubscribe function. */
  onLost(listener: (loss: { readonly reason: LossReason; readonly generation: Generation }) => void): () => void;
}

export interface DestroyOptions {
  readonly force?: boolean;
  readonly purge?: boolean;
  readonly signal?: AbortSignal;
  /** How long to wait for the engine's confirmation before answering `stopping`. */
  readonly timeoutMs?: number;
}

/**
 * Checkpoints of a thread's workspace and home. Memory and processes are not kept. A checkpoint is named by its id, an
 * unambiguous beginning of it, or its label.
 */
export interface FleetCheckpoints {
  /** Newest first. */
  list(key: ThreadKeyInput): Promise<readonly Checkpoint[]>;
  find(key: ThreadKeyInput, checkpoint: string): Promise<Checkpoint>;
  /** Nothing changed since the newest one and no label: nothing is written, and it is the answer. */
  take(key: ThreadKeyInput, options?: TakeCheckpointOptions): Promise<TakenCheckpoint>;
  /**
   * What changed between two checkpoints, or since one until now. Without `from`: since the newest state that differs from
   * the present, which is what an undo goes back to.
   */
  diff(key: ThreadKeyInput, options?: DiffOptions): Promise<CheckpointDiff>;
  /**
   * Brings back a checkpoint. Ends the thread's sandbox first, because files never change under one; the present is
   * kept as a checkpoint. Refused while others hold the sandbox, unless forced; then their leases are lost with
   * `restored`, and their next use gets the next generation.
   */
  restore(key: ThreadKeyInput, checkpoint: string, options?: RestoreOptions): Promise<RestoredCheckpoint>;
  /** Restores the newest earlier state that differs from the present. Again: the one before. */
  undo(key: ThreadKeyInput, options?: Omit<RestoreOptions, "paths">): Promise<RestoredCheckpoint>;
  /** Returns from the newest undo. */
  redo(key: ThreadKeyInput, options?: Omit<RestoreOptions, "paths">): Promise<RestoredCheckpoint>;
  /** A new thread of the same user with the files of a checkpoint, or with those of now. */
  fork(key: ThreadKeyInput, to: string, options?: ForkOptions): Promise<Seeded>;
  /** A new thread from outside: `acquire({ from })` without the acquire. */
  seed(to: ThreadKeyInput, from: SeedInput, options?: CheckpointCall): Promise<Seeded>;
  remove(key: ThreadKeyInput, checkpoint: string): Promise<void>;
  /** Reads every object of one checkpoint, or of all. */
  verify(
    key: ThreadKeyInput,
    options?: CheckpointCall & { readonly checkpoint?: string },
  ): Promise<VerifiedCheckpoints>;
  /** A tar stream. */
  export(key: ThreadKeyInput, checkpoint: string, options?: CheckpointCall): AsyncIterable<Uint8Array>;
}

export interface FleetTimeline {
  readonly isKept: boolean;
  /** One page. Without `from` the newest entries; with `before` the newest before it. */
  read(key: ThreadKeyInput, query?: TimelineRead): Promise<TimelinePage>;
  /** Entries as they come, from `from` on, default from now. Ends with the signal. */
  follow(
    key: ThreadKeyInput,
    options?: TimelineFilter & { readonly from?: number; readonly signal?: AbortSignal },
  ): AsyncIterable<FollowedEntry>;
  /** Adds an entry about something that happens beside the fleet, such as a preview. Never fails, and waits for nothing. */
  note(key: ThreadKeyInput, note: TimelineNote): void;
}

export interface TimelineFilter {
  readonly kinds?: readonly TimelineKind[];
  /** Wall-clock milliseconds. */
  readonly since?: number;
  readonly until?: number;
}

export interface TimelineRead extends TimelineFilter {
  readonly from?: number;
  readonly before?: number;
  /** Default 200. */
  readonly limit?: number;
}

/** `gap`: entries were dropped before they were read. */
export type FollowedEntry = { readonly kind: "entry"; readonly entry: TimelineEntry } | { readonly kind: "gap" };

export interface CheckpointCall {
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: CheckpointProgress) => void;
  /** Time limit for the whole call. Default `checkpoints.timeoutMs`. */
  readonly timeoutMs?: number;
  /** Names the `checkpoint-progress` events of this call. Without one only restores have any. */
  readonly requestId?: string;
}

export interface TakeCheckpointOptions extends CheckpointCall {
  /** A name. A labelled checkpoint is kept until it is removed. */
  readonly label?: string;
  /** Freezes the sandbox meanwhile, so that no file changes while it is read. `capability_missing` without `pause`. */
  readonly quiesce?: boolean;
  /** Reads every file again. */
  readonly verify?: boolean;
}

export interface TakenCheckpoint {
  readonly checkpoint: Checkpoint;
  /** False: nothing had changed, and this is the newest one. */
  readonly isNew: boolean;
}

export interface DiffOptions extends CheckpointCall {
  /** `null`: an empty workspace. */
  readonly from?: string | null;
  readonly to?: string;
  /** With the text diffs of files up to 1 MiB. */
  readonly texts?: boolean;
  readonly paths?: readonly string[];
  readonly maxChanges?: number;
}

export interface RestoreOptions extends CheckpointCall {
  /** Only these, relative to the workspace's root. */
  readonly paths?: readonly string[];
  readonly force?: boolean;
  /** The same again finds the result of the first, and names its events of progress. Random where absent. */
  readonly requestId?: string;
}

export interface RestoredCheckpoint {
  /** The present, with the target's content. */
  readonly checkpoint: Checkpoint;
  /** What the present was before. */
  readonly safety: Checkpoint;
}

export interface ForkOptions extends CheckpointCall {
  readonly checkpoint?: string;
}

export interface VerifiedCheckpoints {
  readonly checked: number;
  readonly damaged: readonly { readonly checkpoint: string; readonly path: string }[];
}

export type SeedInput =
  | { readonly thread: string; readonly checkpoint?: string }
  | { readonly archive: AsyncIterable<Uint8Array> }
  | { readonly directory: string };

export type ResetHomeOptions = Omit<DestroyOptions, "purge">;

/** `stopping`: the sandbox will end, but the engine has not confirmed it yet. */
export type DestroyOutcome = "absent" | "stopped" | "stopping";

export interface CloseOptions {
  /** Also stops the sandboxes without other holders. */
  readonly destroy?: boolean;
  /** How long to wait for the release of leases before closing anyway. */
  readonly drainMs?: number;
}

export interface FleetEvents extends AsyncIterable<FleetEvent> {
  on(listener: (event: FleetEvent) => void, ...types: FleetEventType[]): () => void;
  /** A failure of work beside the fleet, which no call can report: the event `housekeeping-failed`. */
  report(task: string, problem: string): void;
}

export interface RemoteLeases {
  renew(leaseId: LeaseId | string): Promise<{ readonly expiresInMs: number }>;
  /** Idempotent: false when the lease does not exist. */
  release(leaseId: LeaseId | string): Promise<boolean>;
}

export interface ExplainOptions {
  /** Limits the answer to this user's sandboxes; another user's is `sandbox_not_found`. */
  readonly user?: string;
  /** The calling process is about to end. If it is the last one, sandboxes end after `orphanTimeoutMs`. */
  readonly leaving?: boolean;
}

export interface Explanation {
  readonly sandboxId: SandboxId;
  readonly user: UserId | null;
  readonly thread: ThreadId | null;
  /** The engine that has it, while it is known. */
  readonly engine?: string;
  readonly state: SandboxSummary["state"] | "absent";
  /** A one-sentence summary. */
  readonly summary: string;
  readonly holders: readonly { readonly who: string; readonly purpose: string; readonly since: number }[];
  /** `at` is `null` while another instance is stopping the sandbox and its start time is unknown here. */
  readonly stopped: { readonly reason: StopReason; readonly by: InstanceId; readonly at: number | null } | null;
  /** What will end the sandbox if nothing changes, and when. */
  readonly ends: { readonly reason: StopReason; readonly at: number } | null;
  /** Recent events of this sandbox that this instance saw. */
  readonly history: readonly FleetEvent[];
}
