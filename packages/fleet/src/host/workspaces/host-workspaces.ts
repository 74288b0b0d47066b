/**
 * Workspaces on this host's disk for the gateway: it reads and writes uploads and artifacts without waiting for a
 * sandbox, wherever the workspace is at that moment.
 */

import {
  type FileStat,
  isSandlotError,
  parseThreadId,
  parseUserId,
  SandlotError,
  type ThreadKey,
  WORKSPACE_ROOT,
} from "@sandlot/contract";
import type { NamedBlueprint } from "../../backend/blueprint.ts";
import type { Checkpoints } from "../../backend/checkpoints.ts";
import type { HostWorkspaces, StagedFile, WorkspaceFiles } from "../../backend/host-workspaces.ts";
import { threadKeyOf } from "../../backend/labels.ts";
import { type Grow, metered, type WriteBudget } from "../../backend/write-budget.ts";
import { draftName } from "../../world/drafts.ts";
import type { World } from "../../world/world.ts";
import { measureTree } from "../limits/disk/measure.ts";
import type { DiskWorkspaces } from "./disk-workspaces.ts";
import type { WorkspaceHandle } from "./handle.ts";
import type { Owner } from "./homes.ts";
import type { WorkspaceFiles as DiskFiles } from "./workspace-files.ts";

export interface HostOptions {
  /**
   * The budget of a thread's writes, where sandboxes have a disk limit; `null` where only its sandbox can enforce it.
   * Absent where no sandbox has such a limit.
   */
  readonly budgetOf?: (thread: ThreadKey) => WriteBudget | null;
  /** Copies threads with all their links and names. Absent: a plain copy of files and directories. */
  readonly checkpoints?: Pick<Checkpoints, "seed">;
}

/** The route has no limit of its own; the copy ends with its worker. */
const UNLIMITED = new AbortController().signal;

/** The same for a backend with these blueprints: its writes are held to budgets where one of them has a limit. */
export function hostWorkspacesOf(
  disk: DiskWorkspaces,
  world: World,
  blueprints: Readonly<Record<string, NamedBlueprint>>,
  budgetOf: (thread: ThreadKey) => WriteBudget | null,
  checkpoints: Pick<Checkpoints, "seed">,
): HostWorkspaces {
  const isBudgeted = Object.values(blueprints).some(
    ({ blueprint: { limits } }) => limits.diskBytes !== undefined || limits.filesMax !== undefined,
  );
  return hostWorkspaces(disk, world, { ...(isBudgeted && { budgetOf }), checkpoints });
}

/** Where workspaces are found: on this machine's disk, or on a volume that it mounts. */
export type LocatedWorkspaces = Pick<DiskWorkspaces, "locate" | "branch">;

export function hostWorkspaces(disk: LocatedWorkspaces, world: World, options: HostOptions = {}): HostWorkspaces {
  const swept = new Swept();
  return {
    async use(key, use) {
      const reach = new Reach(disk, ownerOf(key));
      try {
        return await use(new HostFiles(reach, world, swept));
      } finally {
        reach.close();
      }
    },
    async openFile(key, path) {
      if (!path.startsWith(`${WORKSPACE_ROOT}/`)) return null;
      const handle = await disk.locate(ownerOf(key));
      if (handle === null) return null;
      try {
        const file = await handle.files.open(relative(path));
        const stat = absolute(file.stat);
        return { stat, stream: (range) => file.stream(range), close: () => file.close() };
      } catch (error) {
        if (error instanceof SandlotError) return null;
        throw error;
      } finally {
        // The file has a descriptor of its own.
        handle.close();
      }
    },
    async writeFile(key, path, content, how) {
      if (!path.startsWith(`${WORKSPACE_ROOT}/`)) return null;
      const { user, thread } = ownerOf(key);
      const budget = options.budgetOf?.(threadKeyOf(user, thread));
      if (budget === null) return null;
      const handle = await disk.locate(ownerOf(key), { make: true });
      if (handle === null) return null;
      const reading = { begun: false };
      try {
        const write = (bytes: typeof content) => handle.files.write(relative(path), noticed(bytes, reading), how);
        const within = (grow: Grow) => write(metered(content, grow));
        return absolute(await (budget === undefined ? write(content) : budget.admit(path, 0, 1, within)));
      } catch (error) {
        if (!reading.begun && isForTheSandbox(error)) return null;
        throw inSandboxPaths(error);
      } finally {
        // Not with `using`: the process of a shared volume runs this file on a Node that does not support it.
        handle.close();
      }
    },
    async branch(from, to, limits) {
      const copy = () => disk.branch(ownerOf(from), ownerOf(to), limits);
      const seed = ({ checkpoints }: Required<Pick<HostOptions, "checkpoints">>) =>
        checkpoints.seed({ kind: "thread", owner: ownerOf(from) }, ownerOf(to), limits ?? null, { signal: UNLIMITED });
      const seeded = await (options.checkpoints === undefined ? copy() : seed({ checkpoints: options.checkpoints }));
      const { fileCount, sizeBytes, skipped } = seeded;
      return { fileCount, sizeBytes, skipped: skipped.map((path) => `${WORKSPACE_ROOT}/${path}`) };
    },
    async measure(key, maxFiles) {
      const handle = await disk.locate(ownerOf(key));
      if (handle === null) return null;
      try {
        // The dot resolves the descriptor's own link, which would not be followed otherwise.
        return await measureTree(`${handle.path}/.`, maxFiles);
      } finally {
        handle.close();
      }
    },
  };
}

async function* noticed(content: AsyncIterable<Uint8Array>, reading: { begun: boolean }) {
  reading.begun = true;
  yield* content;
}

/** A link or another special file is in the way, which only the sandbox can resolve. */
function isForTheSandbox(error: unknown): boolean {
  return (
    isSandlotError(error, "invalid_path") ||
    isSandlotError(error, "not_a_directory") ||
    isSandlotError(error, "permission_denied") ||
    isSandlotError(error, "is_a_directory")
  );
}

function ownerOf({ user, thread }: { readonly user: string; readonly thread: string }): Owner {
  return { user: parseUserId(user), thread: parseThreadId(thread) };
}

/** A thread's workspace, opened at its first use. Only a write creates one: reading leaves no trace. */
class Reach {
  readonly owner: Owner;
  readonly #disk: LocatedWorkspaces;
  readonly #handles = new Set<WorkspaceHandle>();
  #handle: WorkspaceHandle | null = null;

  constructor(disk: LocatedWorkspaces, owner: Owner) {
    this.#disk = disk;
    this.owner = owner;
  }

  async files(options: { readonly make?: boolean; readonly change?: boolean } = {}): Promise<DiskFiles | null> {
    // Looked at again for each change: a restore may have begun since.
    if (this.#handle === null || options.make === true || options.change === true) {
      const handle = await this.#disk.locate(this.owner, options);
      if (handle !== null) this.#handles.add(handle);
      this.#handle ??= handle;
    }
    return this.#handle?.files ?? null;
  }

  close(): void {
    for (const handle of this.#handles) handle.close();
  }
}

/** Directories already cleared of what killed processes left. Once for each is enough: this process was not killed. */
class Swept {
  readonly #names = new Set<string>();

  async once(owner: Owner, files: DiskFiles, directory: string): Promise<void> {
    const name = JSON.stringify([owner.user, owner.thread, directory]);
    if (this.#names.has(name)) return;
    if (this.#names.size >= SWEPT_MAX) this.#names.clear();
    this.#names.add(name);
    await files.sweep(directory);
  }
}

const SWEPT_MAX = 100_000;

/** Paths are the sandbox's own outside, and relative to the workspace inside. */
class HostFiles implements WorkspaceFiles {
  readonly #reach: Reach;
  readonly #world: World;
  readonly #swept: Swept;

  constructor(reach: Reach, world: World, swept: Swept) {
    this.#reach = reach;
    this.#world = world;
    this.#swept = swept;
  }

  async stat(path: string): Promise<FileStat | null> {
    const files = await this.#reach.files();
    return files === null ? null : orNull(files.stat(relative(path)).then(absolute));
  }

  async list(directory: string): Promise<readonly FileStat[]> {
    const files = await this.#reach.files();
    if (files === null) return [];
    await this.#swept.once(this.#reach.owner, files, relative(directory));
    const listing = await orNull(files.list(relative(directory), { depth: 1 }));
    return listing?.entries.map(absolute) ?? [];
  }

  async *read(path: string, range?: { readonly offset?: number; readonly length?: number }) {
    const files = await this.#reach.files();
    if (files === null) throw new SandlotError("file_not_found", { path });
    try {
      yield* files.download(relative(path), range);
    } catch (error) {
      throw inSandboxPaths(error);
    }
  }

  async stage(directory: string, content: AsyncIterable<Uint8Array>): Promise<StagedFile> {
    const files = await this.#writable(directory);
    const staged = `${relative(directory)}/${draftName(this.#world)}`;
    const { sizeBytes } = await files.write(staged, content, { mode: 0o644, ifVersion: null }).catch(rethrow);
    let placed = false;
    return {
      sizeBytes,
      read: () => files.download(staged),
      place: async (path) => {
        const name = nameOf(path);
        if (directoryOf(path) !== directory) {
          throw new SandlotError("invalid_path", { path, problem: `it is not in ${directory}` });
        }
        const stat = await files.replace(staged, name).catch(rethrow);
        placed = true;
        return absolute(stat);
      },
      discard: async () => {
        if (!placed) await orNull(files.remove(staged));
      },
    };
  }

  async write(path: string, content: AsyncIterable<Uint8Array>, ifVersion: string | null): Promise<FileStat> {
    const files = await this.#writable(directoryOf(path));
    return files.write(relative(path), content, { ifVersion }).then(absolute, rethrow);
  }

  async remove(path: string): Promise<void> {
    const files = await this.#reach.files({ change: true });
    if (files === null) throw new SandlotError("file_not_found", { path });
    await files.remove(relative(path)).catch(rethrow);
  }

  async #writable(directory: string): Promise<DiskFiles> {
    const files = await this.#reach.files({ make: true });
    if (files === null) throw new SandlotError("internal", { problem: "a workspace was made and is not there" });
    await this.#swept.once(this.#reach.owner, files, relative(directory));
    return files;
  }
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

function directoryOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/"));
}

function relative(path: string): string {
  if (path === WORKSPACE_ROOT) return "";
  if (path.startsWith(`${WORKSPACE_ROOT}/`)) return path.slice(WORKSPACE_ROOT.length + 1);
  throw new SandlotError("invalid_path", { path, problem: `it is not below ${WORKSPACE_ROOT}` });
}

function absolute(stat: FileStat): FileStat {
  return { ...stat, path: `${WORKSPACE_ROOT}/${stat.path}` };
}

/** A missing file, or a parent that is no directory: both mean that there is no such file. */
async function orNull<T>(promise: Promise<T>): Promise<T | null> {
  try {
    return await promise;
  } catch (error) {
    if (isSandlotError(error, "file_not_found") || isSandlotError(error, "not_a_directory")) return null;
    throw inSandboxPaths(error);
  }
}

function rethrow(error: unknown): never {
  throw inSandboxPaths(error);
}

/** The same error with the requested path: the files on this disk have only the path below the workspace. */
function inSandboxPaths(error: unknown): unknown {
  if (!isSandlotError(error) || !("path" in error.details)) return error;
  const { path } = error.details;
  if (typeof path !== "string" || path.startsWith("/")) return error;
  const details = { ...error.details, path: `${WORKSPACE_ROOT}/${path}` };
  return new SandlotError(error.code, details as never, { cause: error.cause });
}
