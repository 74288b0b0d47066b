/**
 * Checkpoints of workspaces, as a backend offers them: mechanism only. Which checkpoint is taken when, and that a
 * restore runs under no live sandbox, is the fleet's business (`lifecycle/`).
 *
 * Rules for every implementation
 * - Nothing of one user is readable, or noticeable, through calls of another.
 * - A checkpoint exists from its commit point on, whole; before it there is only garbage, which a collection removes.
 * - Every method may be called again after a crash or a lost answer: it looks before it acts.
 * - `restore` is called only for a record in `stopping` whose sandbox is confirmed gone and whose workspace is home.
 *   It is fenced by generation and sandbox id like the steps of `Workspaces`, and leaves the workspace as the target
 *   has it, or fails and is called again; the thread cannot be acquired in between.
 * - Everything inside the walked tree is hostile. No call blocks the event loop for more than 20 ms.
 * - `Workspaces.purge` removes the thread's checkpoints in the same step as its workspace.
 */

import type { Checkpoint, CheckpointDiff, Generation, ThreadId, UserId } from "@sandlot/contract";
import type { WorkspaceSpot } from "./backend.ts";

export interface WorkspaceOwner {
  readonly user: UserId;
  readonly thread: ThreadId;
}

/** What a long call has done so far. `total` is null where it is not known before the end. */
export interface CheckpointProgress {
  readonly phase: "walking" | "storing" | "comparing" | "applying" | "reading";
  readonly files: number;
  readonly bytes: number;
  readonly totalFiles: number | null;
}

export interface LongCall {
  readonly signal: AbortSignal;
  readonly onProgress?: (progress: CheckpointProgress) => void;
}

export interface TakeOptions extends LongCall {
  readonly cause: Checkpoint["cause"];
  readonly label?: string;
  /**
   * The generation and environment of the sandbox that uses the workspace, for the record; without one, both are those
   * of the checkpoint before.
   */
  readonly generation: Generation | null;
  readonly environment: string | null;
  /**
   * What may still write: a live sandbox's processes (its mappings can change files without any time changing); nothing
   * since the workspace came home; or a frozen sandbox, whose mappings still exist.
   */
  readonly writers: "live" | "frozen" | "none";
  /** Paths below the workspace's root that are not kept. Absent: those of the checkpoint before. */
  readonly leftOut?: readonly string[];
  /** Reads every file again, whatever the index says. */
  readonly verify?: boolean;
  /** The same request again finds the checkpoint of the first. Random where absent. */
  readonly requestId?: string;
}

/** `unchanged`: the newest checkpoint has the same tree, and no label was asked for, so nothing was written. */
export type Taken =
  | { readonly kind: "taken"; readonly checkpoint: Checkpoint }
  | { readonly kind: "unchanged"; readonly checkpoint: Checkpoint }
  /** The thread has no files, so there is nothing to keep. */
  | { readonly kind: "nothing" };

/** What a restore brings back. Undo and redo are resolved to one before anything is stopped. */
export interface RestoreTarget {
  readonly checkpoint: string;
  /** Only these paths, relative to the workspace; all of it where absent. */
  readonly paths?: readonly string[];
  /** Names the request: its safety checkpoint and its result are found again by it. */
  readonly requestId: string;
  /** What the caller asked for, for the history: `redo` returns from an `undo`. */
  readonly as: "restore" | "undo" | "redo";
}

export interface Restored {
  /** The new head, with the target's tree (for paths: with these paths as the target has them). */
  readonly checkpoint: Checkpoint;
  /** The present before the restore. */
  readonly safety: Checkpoint;
}

/** Where a new workspace's content comes from. */
export type SeedSource =
  | { readonly kind: "checkpoint"; readonly owner: WorkspaceOwner; readonly checkpoint: string }
  /** The present of another thread of the same user. */
  | { readonly kind: "thread"; readonly owner: WorkspaceOwner }
  /** A tar stream, plain or gzip: hostile input. */
  | { readonly kind: "archive"; readonly content: AsyncIterable<Uint8Array> }
  /** A directory of the host, for operators. */
  | { readonly kind: "directory"; readonly path: string };

export interface Seeded {
  readonly fileCount: number;
  readonly sizeBytes: number;
  /** What was not taken over, relative to the workspace; the first thousand. */
  readonly skipped: readonly string[];
  /** The new thread's first checkpoint. */
  readonly checkpoint: Checkpoint;
}

export interface Budget {
  readonly maxBytes: number;
  readonly maxFiles: number;
}

/** The configuration's `checkpoints`, as far as it is the backend's business. */
export interface CheckpointBounds {
  /** Relative to the workspace's root. */
  readonly leftOut: readonly string[];
  readonly perThreadMax: number;
  readonly perUserMax: number;
  readonly maxAgeDays: number;
  readonly perThreadBytes: number;
  readonly perUserBytes: number;
  readonly readBytes: number;
  readonly freeBytes: number;
}

export interface Checkpoints {
  /** `checkpoint_refused` beyond the bounds of thread or user; concurrent takes of one thread share one walk. */
  take(owner: WorkspaceOwner, options: TakeOptions): Promise<Taken>;
  /** Newest first. */
  list(owner: WorkspaceOwner): Promise<readonly Checkpoint[]>;
  /** The head of the thread's history, without reading the others; `null`: the thread has none. */
  newest(owner: WorkspaceOwner): Promise<Checkpoint | null>;
  /** By id, by an unambiguous prefix of at least 4 characters, or by label. `checkpoint_not_found`. */
  find(owner: WorkspaceOwner, name: string): Promise<Checkpoint>;
  /**
   * The checkpoint that an undo or redo goes to: for `undo` the newest ancestor of the head whose tree differs from the
   * head's; for `redo` the state that the newest undo left. The caller has taken the present before. `nothing_to_undo`.
   */
  resolve(owner: WorkspaceOwner, direction: "undo" | "redo"): Promise<Checkpoint>;
  /** `from: null` is the empty workspace, `to: null` the present. */
  diff(
    owner: WorkspaceOwner,
    range: { readonly from: string | null; readonly to: string | null },
    options: LongCall & {
      readonly texts: boolean;
      readonly maxChanges: number;
      /** Only below these paths. */
      readonly paths?: readonly string[];
    },
  ): Promise<CheckpointDiff>;
  /**
   * Refuses, before anything is stopped, a restore that cannot work: objects missing or damaged (`checkpoint_damaged`),
   * more than the budget (`disk_limit_exceeded`), no room on the disk. `null`: no budget.
   */
  check(owner: WorkspaceOwner, target: RestoreTarget, budget: Budget | null, call: LongCall): Promise<void>;
  /**
   * `checkpoint_not_found`, `checkpoint_damaged` and `disk_limit_exceeded` mean that nothing was changed and nothing is
   * unfinished: the thread goes on as it was. After every other failure it is called again.
   */
  restore(spot: WorkspaceSpot, target: RestoreTarget, budget: Budget | null, call: LongCall): Promise<Restored>;
  /** The result of a restore, by its request. `null`: it was not completed. */
  outcome(owner: WorkspaceOwner, requestId: string): Promise<Restored | null>;
  /**
   * Restores that have begun to change a workspace and are not complete. Records ask for them; after a loss of the store
   * housekeeping finds them here, and finishes them.
   */
  unfinished(): Promise<readonly { readonly owner: WorkspaceOwner; readonly target: RestoreTarget }[]>;
  /**
   * Fills the workspace of a thread that has none. All or nothing: built aside, moved home when complete.
   * `thread_exists` where the thread has files; a source of another user is `thread_not_found`.
   */
  seed(source: SeedSource, to: WorkspaceOwner, budget: Budget | null, call: LongCall): Promise<Seeded>;
  /** Its bytes go with a later collection. Children keep their trees, and get its parent as theirs. */
  remove(owner: WorkspaceOwner, checkpoint: string): Promise<void>;
  /** Reads every object of one checkpoint, or of all. */
  verify(
    owner: WorkspaceOwner,
    checkpoint: string | null,
    call: LongCall,
  ): Promise<{
    readonly checked: number;
    readonly damaged: readonly { readonly checkpoint: string; readonly path: string }[];
  }>;
  /** A tar stream (PAX) of its tree. */
  export(owner: WorkspaceOwner, checkpoint: string, call: LongCall): AsyncIterable<Uint8Array>;
  /** Removes what no checkpoint needs, for all users that are due. Called by housekeeping; `onProblem` per failure. */
  collect(onProblem: (problem: string) => void, signal: AbortSignal): Promise<void>;
  /** What the store holds for a user. */
  usage(user: UserId): Promise<{ readonly checkpoints: number; readonly storedBytes: number }>;
}
