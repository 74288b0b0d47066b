/**
 * Workspaces on this host's disk as the gateway uses them: uploads and artifacts are read and placed without waiting for
 * a sandbox, wherever the workspace is at that moment.
 */

import {
  type FileStat,
  isSandlotError,
  parseThreadId,
  parseUserId,
  SandlotError,
  WORKSPACE_ROOT,
} from "@sandlot/contract";
import {
  type HostWorkspaces,
  STAGED_PREFIX,
  STAGED_SUFFIX,
  type StagedFile,
  type WorkspaceFiles,
} from "../../gateway/workspace-access.ts";
import type { World } from "../../world/world.ts";
import type { DiskWorkspaces } from "./disk-workspaces.ts";
import type { WorkspaceFiles as DiskFiles } from "./workspace-files.ts";

export function hostWorkspaces(disk: DiskWorkspaces, world: World): HostWorkspaces {
  return {
    async use(key, use) {
      const named = { user: parseUserId(key.user), thread: parseThreadId(key.thread) };
      const handle = await disk.locate(named, { make: true });
      if (handle === null) throw new SandlotError("file_not_found", { path: WORKSPACE_ROOT });
      try {
        return await use(new HostFiles(handle.files, world));
      } finally {
        handle.close();
      }
    },
  };
}

/** Paths are the sandbox's own outside, and relative to the workspace inside. */
class HostFiles implements WorkspaceFiles {
  readonly #files: DiskFiles;
  readonly #world: World;

  constructor(files: DiskFiles, world: World) {
    this.#files = files;
    this.#world = world;
  }

  async stat(path: string): Promise<FileStat | null> {
    return orNull(this.#files.stat(relative(path)).then(absolute));
  }

  async list(directory: string): Promise<readonly FileStat[]> {
    const listing = await orNull(this.#files.list(relative(directory), { depth: 1 }));
    return listing?.entries.map(absolute) ?? [];
  }

  read(path: string, range?: { readonly offset?: number; readonly length?: number }): AsyncIterable<Uint8Array> {
    return this.#files.download(relative(path), range);
  }

  async stage(directory: string, content: AsyncIterable<Uint8Array>): Promise<StagedFile> {
    const files = this.#files;
    const staged = `${relative(directory)}/${STAGED_PREFIX}${this.#world.randomHex(8)}${STAGED_SUFFIX}`;
    const { sizeBytes } = await files.write(staged, content, { mode: 0o644, ifVersion: null });
    let placed = false;
    return {
      sizeBytes,
      read: () => files.download(staged),
      place: async (path) => {
        const name = path.slice(path.lastIndexOf("/") + 1);
        if (path.slice(0, -name.length - 1) !== directory) {
          throw new SandlotError("invalid_path", { path, problem: `it is not in ${directory}` });
        }
        const stat = await files.replace(staged, name);
        placed = true;
        return absolute(stat);
      },
      discard: async () => {
        if (!placed) await orNull(files.remove(staged));
      },
    };
  }

  async write(path: string, content: AsyncIterable<Uint8Array>, ifVersion: string | null): Promise<FileStat> {
    return absolute(await this.#files.write(relative(path), content, { ifVersion }));
  }

  remove(path: string): Promise<void> {
    return this.#files.remove(relative(path));
  }
}

function relative(path: string): string {
  if (path.startsWith(`${WORKSPACE_ROOT}/`)) return path.slice(WORKSPACE_ROOT.length + 1);
  throw new SandlotError("invalid_path", { path, problem: `it is not below ${WORKSPACE_ROOT}` });
}

function absolute(stat: FileStat): FileStat {
  return { ...stat, path: `${WORKSPACE_ROOT}/${stat.path}` };
}

/** Nothing is there, or what is on the way is no directory: both mean that there is no such file. */
async function orNull<T>(promise: Promise<T>): Promise<T | null> {
  try {
    return await promise;
  } catch (error) {
    if (isSandlotError(error, "file_not_found") || isSandlotError(error, "not_a_directory")) return null;
    throw error;
  }
}
