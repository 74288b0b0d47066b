/**
 * A thread's files as uploads and artifacts see them: what a backend with workspaces on this host's disk gives, and what is
 * done with them. `workspace-access.ts` has the invariants, and reaches the same through a sandbox.
 */

import type { FileStat, ThreadId, UserId, WriteOptions } from "@sandlot/contract";

/** The thread whose workspace is meant. */
export interface WorkspaceKey {
  readonly user: UserId;
  readonly thread: ThreadId;
}

export interface StagedFile {
  readonly sizeBytes: number;
  /** Makes it appear at `path`, over nothing or a regular file; over anything else it is `file_exists`. */
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
  /** What is directly in a directory; nothing when it does not exist. */
  list(directory: string): Promise<readonly FileStat[]>;
  read(path: string, range?: { readonly offset?: number; readonly length?: number }): AsyncIterable<Uint8Array>;
  stage(directory: string, content: AsyncIterable<Uint8Array>): Promise<StagedFile>;
  /** Replaces a file, atomically, and only over that version of it (`null`: only where there is none). */
  write(path: string, content: AsyncIterable<Uint8Array>, ifVersion: string | null): Promise<FileStat>;
  remove(path: string): Promise<void>;
}

/** A plain file, open: what it says of itself and what is read are of one and the same. */
export interface OpenFile {
  readonly stat: FileStat;
  stream(range?: { readonly offset: number; readonly length: number }): AsyncIterable<Uint8Array>;
  close(): Promise<void>;
}

/** What a backend with workspaces on this host's disk gives. */
export interface HostWorkspaces {
  /** Runs `use` with the thread's files, wherever they are now, with no sandbox made for it. */
  use<T>(key: WorkspaceKey, use: (files: WorkspaceFiles) => Promise<T>): Promise<T>;
  /**
   * Opens a file with no sandbox asked. `null` where only a sandbox can tell: outside the workspace, behind a link, no
   * plain file, or not there.
   */
  openFile?(key: WorkspaceKey, path: string): Promise<OpenFile | null>;
  /**
   * Writes a file, atomically, with no sandbox asked. `null`, and nothing of the content read, where only a sandbox can:
   * outside the workspace, through a link, or within a budget that it keeps.
   */
  writeFile?(
    key: WorkspaceKey,
    path: string,
    content: AsyncIterable<Uint8Array>,
    options: WriteOptions,
  ): Promise<FileStat | null>;
  /**
   * Copies all of a thread's workspace to a thread that has none; more than the limits allow is `disk_limit_exceeded`, and
   * then nothing is there. Absent: files are copied through sandboxes.
   */
  branch?(
    from: WorkspaceKey,
    to: WorkspaceKey,
    limits?: { readonly maxBytes: number; readonly maxFiles: number },
  ): Promise<BranchOutcome>;
  /** Where the workspace lies, to be measured; the path is good until it is closed. `null`: there is none yet. */
  place?(key: WorkspaceKey): Promise<{ readonly path: string; close(): void } | null>;
}

export interface BranchOutcome {
  readonly fileCount: number;
  readonly sizeBytes: number;
  readonly skipped: readonly string[];
}
