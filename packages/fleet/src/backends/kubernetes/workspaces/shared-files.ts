/**
 * The files of threads on a shared volume without a sandbox, for the gateway's routes. Every call runs in the process of
 * the volume; content passes in pieces, one at a time. `host/workspaces/` has the rules for hostile content.
 */

import type { FileStat } from "@sandlot/contract";
import type { HostWorkspaces, OpenFile, StagedFile, WorkspaceFiles } from "../../../backend/host-workspaces.ts";
import type { VolumeProcess } from "./volume/volume-process.ts";

/** A copy, or a walk through a big workspace. */
const LONG_MS = 600_000;

export interface SharedFilesOptions {
  /** Whether a disk limit is set. A write outside the gateway's budgets then goes through the sandbox. */
  readonly isBudgeted: boolean;
}

export function sharedFiles(volume: VolumeProcess, { isBudgeted }: SharedFilesOptions): HostWorkspaces {
  return {
    async use(key, use, signal) {
      signal?.throwIfAborted();
      const session = await volume.call("openSession", [key]);
      try {
        return await use(new SessionFiles(volume, session));
      } finally {
        await volume.call("closeSession", [session]).catch(ignoreEnded);
      }
    },
    async openFile(key, path): Promise<OpenFile | null> {
      const opened = await volume.call("openFile", [key, path]);
      if (opened === null) return null;
      const { id, stat } = opened;
      return {
        stat,
        stream: (range) => streamed(volume, () => volume.call("streamFile", [id, range])),
        close: () => volume.call("closeFile", [id]).catch(ignoreEnded),
      };
    },
    async writeFile(key, path, content, options) {
      return isBudgeted ? null : volume.call("writeFile", [key, path, options], { content });
    },
    branch: (from, to, limits) => volume.call("branch", [from, to, limits], { deadlineMs: LONG_MS }),
    measure: (key, maxFiles) => volume.call("measure", [key, maxFiles], { deadlineMs: LONG_MS }),
  };
}

/** Nothing is open in a process that has ended, so there is nothing to close. */
function ignoreEnded(): void {}

class SessionFiles implements WorkspaceFiles {
  readonly #volume: VolumeProcess;
  readonly #session: number;

  constructor(volume: VolumeProcess, session: number) {
    this.#volume = volume;
    this.#session = session;
  }

  stat(path: string): Promise<FileStat | null> {
    return this.#volume.call("stat", [this.#session, path]);
  }

  list(directory: string): Promise<readonly FileStat[]> {
    return this.#volume.call("list", [this.#session, directory]);
  }

  read(path: string, range?: { readonly offset?: number; readonly length?: number }): AsyncIterable<Uint8Array> {
    return streamed(this.#volume, () => this.#volume.call("read", [this.#session, path, range]));
  }

  async stage(directory: string, content: AsyncIterable<Uint8Array>): Promise<StagedFile> {
    const { id, sizeBytes } = await this.#volume.call("stage", [this.#session, directory], { content });
    return {
      sizeBytes,
      place: (path) => this.#volume.call("place", [this.#session, id, path]),
      read: () => streamed(this.#volume, () => this.#volume.call("readStaged", [this.#session, id])),
      discard: () => this.#volume.call("discard", [this.#session, id]),
    };
  }

  write(path: string, content: AsyncIterable<Uint8Array>, ifVersion: string | null): Promise<FileStat> {
    return this.#volume.call("write", [this.#session, path, ifVersion], { content });
  }

  remove(path: string): Promise<void> {
    return this.#volume.call("remove", [this.#session, path]);
  }
}

async function* streamed(volume: VolumeProcess, open: () => Promise<number>): AsyncGenerator<Uint8Array> {
  const reader = await open();
  let isOver = false;
  try {
    for (;;) {
      const piece = await volume.call("next", [reader]);
      isOver = piece === null;
      if (piece === null) return;
      yield piece;
    }
  } finally {
    if (!isOver) await volume.call("stop", [reader]).catch(ignoreEnded);
  }
}
