/**
 * Accesses a thread's files for uploads and artifacts, with a sandbox only where there is no other way.
 *
 * A backend whose workspaces are on this host's disk has `HostWorkspaces`; then nothing here waits for a sandbox.
 * Otherwise a lease is held during the work and always released; it is separate, so releasing it never parks a sandbox
 * that is in use.
 *
 * Invariants of every implementation
 * - Paths are the sandbox's own (`/mnt/user-data/uploads/a.txt`) and stay below their directory: a symbolic link
 *   anywhere in the path is never followed.
 * - `stage` writes beside its destination, hidden; `place` makes it appear complete under its name, and replaces only a
 *   regular file. What is staged and not placed is removed.
 */

import { type FileStat, isSandlotError, type Sandbox, SandlotError } from "@sandlot/contract";
import type { HostWorkspaces, StagedFile, WorkspaceFiles } from "../backend/host-workspaces.ts";
import type { World } from "../world/world.ts";
import type { ThreadKey, ThreadUse } from "./thread-use.ts";

export type {
  BranchOutcome,
  HostWorkspaces,
  OpenFile,
  StagedFile,
  WorkspaceFiles,
} from "../backend/host-workspaces.ts";

export const STAGED_PREFIX = ".upload-";
export const STAGED_SUFFIX = ".part";

export class WorkspaceAccess {
  readonly host: HostWorkspaces | null;
  readonly #threads: ThreadUse;
  readonly #world: World;

  constructor(threads: ThreadUse, world: World, host: HostWorkspaces | null) {
    this.#threads = threads;
    this.#world = world;
    this.host = host;
  }

  async use<T>(
    key: ThreadKey,
    purpose: string,
    signal: AbortSignal,
    use: (files: WorkspaceFiles) => Promise<T>,
  ): Promise<T> {
    const { files, done } = await this.open(key, purpose, signal);
    try {
      return await use(files);
    } finally {
      await done();
    }
  }

  /** For a streaming response: the files stay usable until `done` is called. */
  async open(
    key: ThreadKey,
    purpose: string,
    signal: AbortSignal,
  ): Promise<{ readonly files: WorkspaceFiles; readonly done: () => Promise<void> }> {
    if (this.host !== null) return openHost(this.host, key, signal);
    const lease = await this.#threads.acquire(key, purpose, signal);
    return { files: new LeasedFiles(lease.sandbox, this.#world), done: () => this.#threads.release(lease) };
  }
}

/** Turns a callback's scope into one that lasts until `done` is called. */
async function openHost(host: HostWorkspaces, key: ThreadKey, signal: AbortSignal) {
  let finish: () => void = () => undefined;
  const finished = new Promise<void>((resolve) => (finish = resolve));
  let ended: Promise<void> = finished;
  const files = await new Promise<WorkspaceFiles>((resolve, reject) => {
    const hold = async (opened: WorkspaceFiles) => {
      resolve(opened);
      await finished;
    };
    ended = host.use(key, hold, signal);
    ended.catch(reject);
  });
  const done = async () => {
    finish();
    await ended;
  };
  return { files, done };
}

/** The same through a sandbox: links are followed inside it, and reach only what its user can reach. */
class LeasedFiles implements WorkspaceFiles {
  readonly #sandbox: Sandbox;
  readonly #world: World;

  constructor(sandbox: Sandbox, world: World) {
    this.#sandbox = sandbox;
    this.#world = world;
  }

  async stat(path: string): Promise<FileStat | null> {
    try {
      return await this.#sandbox.files.stat(path);
    } catch (error) {
      if (isSandlotError(error, "file_not_found") || isSandlotError(error, "not_a_directory")) return null;
      throw error;
    }
  }

  async list(directory: string): Promise<readonly FileStat[]> {
    try {
      return (await this.#sandbox.files.list(directory, { depth: 1 })).entries;
    } catch (error) {
      if (isSandlotError(error, "file_not_found")) return [];
      throw error;
    }
  }

  read(path: string, range?: { offset?: number; length?: number }): AsyncIterable<Uint8Array> {
    return this.#sandbox.files.download(path, range);
  }

  async stage(directory: string, content: AsyncIterable<Uint8Array>): Promise<StagedFile> {
    const { files } = this.#sandbox;
    const staged = `${directory}/${STAGED_PREFIX}${this.#world.randomHex(8)}${STAGED_SUFFIX}`;
    let sizeBytes = 0;
    async function* counted() {
      for await (const piece of content) {
        sizeBytes += piece.byteLength;
        yield piece;
      }
    }
    await files.upload(staged, counted(), { mode: 0o644 });
    let placed = false;
    return {
      sizeBytes,
      read: () => files.download(staged),
      place: async (path) => {
        const there = await this.stat(path);
        if (there !== null && there.kind !== "file") throw new SandlotError("file_exists", { path });
        await files.rename(staged, path);
        placed = true;
        return files.stat(path);
      },
      discard: async () => {
        if (placed) return;
        await files.remove(staged).catch((error: unknown) => {
          if (!isSandlotError(error, "file_not_found")) throw error;
        });
      },
    };
  }

  async write(path: string, content: AsyncIterable<Uint8Array>, ifVersion: string | null): Promise<FileStat> {
    await this.#sandbox.files.upload(path, content, { ifVersion });
    return this.#sandbox.files.stat(path);
  }

  remove(path: string): Promise<void> {
    return this.#sandbox.files.remove(path);
  }
}
