/**
 * A thread's files for uploads and artifacts, from a backend with workspaces on this host's disk. `workspace-access.ts`
 * has the invariants, and reaches the same files through a sandbox.
 */

import type { FileStat, ThreadId, UserId, WriteOptions } from "@sandlot/contract";

/** The thread that owns the workspace. */
export interface WorkspaceKey {
  readonly user: UserId;
  readonly thread: ThreadId;
}

export interface StagedFile {
  readonly sizeBytes: number;
  /** Moves it to `path`, over nothing or a regular file; over anything else it is `file_exists`. */
  place(path: string): Promise<FileStat>;
  /** Reads it back, before it is placed. */
  read(): AsyncIterable<Uint8Array>;
  /** After `place` nothing is left to discard, and this does nothing. */
  discard(): Promise<void>;
}

/** The files of one thread, for the length of one request. */
export interface WorkspaceFiles {
  /** `null` when there is nothing at that path. Does not follow a symbolic link. */
  stat(path: string): Promise<FileStat | null>;
  /** The entries of a directory; empty when the directory does not exist. */
  list(directory: string): Promise<readonly FileStat[]>;
  read(path: string, range?: { readonly offset?: number; readonly length?: number }): AsyncIterable<Uint8Array>;
  stage(directory: string, content: AsyncIterable<Uint8Array>): Promise<StagedFile>;
  /** Replaces a file atomically, and only over that version (`null`: only where no file exists). */
  write(path: string, content: AsyncIterable<Uint8Array>, ifVersion: string | null): Promise<FileStat>;
  remove(path: string): Promise<void>;
}

/** An open regular file: its metadata and its content come from the same file. */
export interface OpenFile {
  readonly stat: FileStat;
  stream(range?: { readonly offset: number; readonly length: number }): AsyncIterable<Uint8Array>;
  close(): Promise<void>;
}

/** Workspaces on this host's disk, or on a volume that it mounts, from a backend that has them. */
export interface HostWorkspaces {
  /**
   * Runs `use` with the thread's files, in their present place, without making a sandbox. The signal ends a wait before
   * `use`, where an implementation has one.
   */
  use<T>(key: WorkspaceKey, use: (files: WorkspaceFiles) => Promise<T>, signal?: AbortSignal): Promise<T>;
  /**
   * Opens a file without a sandbox. `null` where only a sandbox can decide: outside the workspace, behind a link, not a
   * regular file, or missing.
   */
  openFile?(key: WorkspaceKey, path: string): Promise<OpenFile | null>;
  /**
   * Writes a file atomically, without a sandbox. `null`, with none of the content read, where only a sandbox can write:
   * outside the workspace, through a link, or within a budget that the sandbox keeps.
   */
  writeFile?(
    key: WorkspaceKey,
    path: string,
    content: AsyncIterable<Uint8Array>,
    options: WriteOptions,
  ): Promise<FileStat | null>;
  /**
   * Copies all of a thread's workspace to a thread that has none. More than the limits allow is `disk_limit_exceeded`,
   * and leaves no copy. Absent: files are copied through sandboxes.
   */
  branch?(
    from: WorkspaceKey,
    to: WorkspaceKey,
    limits?: { readonly maxBytes: number; readonly maxFiles: number },
  ): Promise<BranchOutcome>;
  /** What the workspace takes on its disk; a walk ends after `maxFiles`. `null`: there is no workspace yet. */
  measure?(key: WorkspaceKey, maxFiles: number): Promise<WorkspaceUsage | null>;
}

/** `complete` is false when something could not be measured, or there are more files than the walk may count. */
export interface WorkspaceUsage {
  readonly bytes: number;
  readonly files: number;
  readonly complete: boolean;
}

export interface BranchOutcome {
  readonly fileCount: number;
  readonly sizeBytes: number;
  readonly skipped: readonly string[];
}
