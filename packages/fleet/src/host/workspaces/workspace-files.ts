/**
 * The files of a workspace as the host reads and writes them, while a sandbox may change them at will.
 *
 * - Paths are relative to the workspace. Symbolic links are listed and can be removed; nothing is read, written or
 *   entered through one.
 * - Only regular files are read and written. A FIFO does not block, a device is not touched.
 * - A write creates a new file and renames it into place, so it changes no file of another name: it refuses to replace
 *   a symbolic link, or a file with several names. The new file belongs to the sandbox.
 */

import { readlinkSync, renameSync, rmdirSync, unlinkSync } from "node:fs";
import { type FileHandle, lstat, opendir, open as openFile, unlink } from "node:fs/promises";
import { type FileListing, type FileStat, isSandlotError, SANDBOX_LIMITS, SandlotError } from "@sandlot/contract";
import { inOurWords, isMissing } from "../../world/disk-trouble.ts";
import { type DraftWorld, draftName, isAbandoned, isDraft } from "../../world/drafts.ts";
import { fdPath, OPEN_READ } from "../descriptors.ts";
import { type Content, type HostWriteOptions, writeFile } from "./file-writer.ts";
import { type ByteRange, OpenedFile } from "./opened-file.ts";
import type { Trash } from "./trash.ts";
import { type Account, moveTree } from "./tree.ts";
import { atPath, checkPlain, describe, inDirectory, namesOf } from "./tree-walk.ts";

export interface FileParts {
  /** The current owner of new files. */
  readonly account: () => Account;
  readonly world: DraftWorld;
  readonly trash: Trash;
  /**
   * Runs a change of a name, which is synchronous, in a step of its own: a restore may have begun since the workspace was
   * opened, and has it to itself then. Absent: nothing restores workspaces here.
   */
  readonly commit?: (work: () => void) => Promise<void>;
}

/** Runs a change of names in a directory while nothing restores the workspace. */
export type Commit = (change: () => void) => Promise<void>;

/** Lends the descriptor of the workspace, and keeps it open until the work is done. */
type UseRoot = <T>(work: (descriptor: number) => Promise<T>) => Promise<T>;

/** A listing with more entries is cut, and says so. */
const LOOK_MAX = 100_000;
/** Each level of a listing holds descriptors. */
const DEPTH_MAX = 64;

export class WorkspaceFiles {
  readonly #use: UseRoot;
  readonly #parts: FileParts;

  constructor(use: UseRoot, parts: FileParts) {
    this.#use = use;
    this.#parts = parts;
  }

  stat(path: string): Promise<FileStat> {
    return this.#use((root) => atPath(root, path, async (node) => describe(path, await node.stat({ bigint: true }))));
  }

  /** The caller closes it. */
  open(path: string): Promise<OpenedFile> {
    const open = async (node: FileHandle) => {
      const stats = await node.stat({ bigint: true });
      checkPlain(path, stats);
      // The descriptor is opened again for reading: it is the file that was checked.
      return new OpenedFile(describe(path, stats), await openFile(fdPath(node.fd), OPEN_READ));
    };
    return this.#use((root) => atPath(root, path, open));
  }

  async read(path: string, range?: ByteRange): Promise<Uint8Array> {
    const file = await this.open(path);
    try {
      return await file.read(range);
    } finally {
      await file.close();
    }
  }

  async *download(path: string, range?: ByteRange): AsyncGenerator<Uint8Array> {
    const file = await this.open(path);
    try {
      yield* file.stream(range);
    } finally {
      await file.close();
    }
  }

  /** Writes atomically, and creates parent directories. An existing file keeps its mode unless `mode` is given. */
  write(path: string, content: Content, options: HostWriteOptions = {}): Promise<FileStat> {
    const { account, world } = this.#parts;
    const draft = draftName(world);
    return this.#inParent(
      path,
      (parent, name, commit) => writeFile({ parent, name, path, account, draft, commit }, content, options),
      { account },
    );
  }

  /** Renames within its directory, over nothing or a regular file with one name; anything else is `file_exists`. */
  replace(from: string, name: string): Promise<FileStat> {
    return this.#inParent(from, async (parent, source, commit) => {
      const path = [...namesOf(from).slice(0, -1), name].join("/");
      if (namesOf(name).length !== 1) throw new SandlotError("invalid_path", { path, problem: "it is not one name" });
      const target = fdPath(parent, name);
      try {
        const there = await lstat(target).catch(nothingThere);
        if (there !== null && (!there.isFile() || there.nlink > 1)) throw new SandlotError("file_exists", { path });
        await commit(() => renameSync(fdPath(parent, source), target));
        return describe(path, await lstat(target, { bigint: true }));
      } catch (error) {
        throw inOurWords(error, path);
      }
    });
  }

  /** Makes a directory and its parents. */
  mkdir(path: string): Promise<void> {
    const { account } = this.#parts;
    return this.#use((root) => inDirectory(root, namesOf(path), async () => {}, { account }));
  }

  /** Removes a file, a symbolic link or an empty directory; with `recursive` a whole tree. */
  remove(path: string, options: { readonly recursive?: boolean } = {}): Promise<void> {
    const { trash, world } = this.#parts;
    return this.#inParent(path, async (parent, name, commit) => {
      const target = fdPath(parent, name);
      try {
        if (!(await lstat(target)).isDirectory()) return await commit(() => unlinkSync(target));
        if (options.recursive !== true) return await commit(() => rmdirSync(target));
        const owner = `removed-${world.randomHex(8)}`;
        await commit(() => moveTree(target, trash.entry(owner)));
        await trash.empty(owner);
      } catch (error) {
        throw inOurWords(error, path);
      }
    });
  }

  /** Entries below a directory, sorted by path, down to `depth` levels. */
  list(path: string, options: { readonly depth?: number; readonly maxResults?: number } = {}): Promise<FileListing> {
    const { depth = 1, maxResults = SANDBOX_LIMITS.listMaxResults } = options;
    return this.#use((root) => {
      const names = namesOf(path);
      return inDirectory(root, names, async (directory) => {
        const found: FileStat[] = [];
        const budget = { looks: LOOK_MAX };
        await this.#list(directory, names, Math.min(depth, DEPTH_MAX), found, budget);
        const entries = found.sort((a, b) => (a.path < b.path ? -1 : 1)).slice(0, maxResults);
        return { entries, truncated: budget.looks <= 0 || found.length > maxResults };
      });
    });
  }

  /** Removes half-written files of killed processes in a directory. A missing directory is fine. */
  async sweep(path: string): Promise<void> {
    const { world } = this.#parts;
    const clear = async (directory: number) => {
      for await (const { name } of await opendir(fdPath(directory))) {
        if (!isDraft(name)) continue;
        const there = await lstat(fdPath(directory, name)).catch(nothingThere);
        if (there === null || there.isDirectory() || !isAbandoned(name, there.mtimeMs, world)) continue;
        await unlink(fdPath(directory, name)).catch(nothingThere);
      }
    };
    try {
      await this.#use((root) => inDirectory(root, namesOf(path), clear));
    } catch (error) {
      if (!isSandlotError(error, "file_not_found") && !isSandlotError(error, "not_a_directory")) throw error;
    }
  }

  #inParent<T>(
    path: string,
    work: (parent: number, name: string, commit: Commit) => Promise<T>,
    make?: Pick<FileParts, "account">,
  ): Promise<T> {
    return this.#use(async (root) => {
      const names = namesOf(path);
      const inStep = this.#parts.commit ?? (async (change: () => void) => change());
      const name = names.at(-1);
      if (name === undefined) throw new SandlotError("invalid_path", { path, problem: "it is the workspace itself" });
      const commit = (parent: number) => (change: () => void) =>
        inStep(() => {
          // A restore, or the sandbox, has taken the directory away since: a name in it would be lost.
          if (!isWithin(root, parent)) throw new SandlotError("file_not_found", { path });
          change();
        });
      return inDirectory(root, names.slice(0, -1), (parent) => work(parent, name, commit(parent)), make);
    });
  }

  async #list(
    directory: number,
    names: readonly string[],
    depth: number,
    found: FileStat[],
    budget: { looks: number },
  ): Promise<void> {
    for await (const { name } of await opendir(fdPath(directory))) {
      if (budget.looks-- <= 0) return;
      if (isDraft(name)) continue;
      const below = [...names, name];
      try {
        const entry = describe(below.join("/"), await lstat(fdPath(directory, name), { bigint: true }));
        found.push(entry);
        if (entry.kind !== "directory" || depth <= 1) continue;
        await inDirectory(directory, [name], (next) => this.#list(next, below, depth - 1, found, budget));
      } catch (error) {
        // Removed or replaced meanwhile, or unreadable: its entries are skipped.
        if (!isMissing(error) && !(error instanceof SandlotError)) throw error;
      }
    }
  }
}

function nothingThere(error: unknown): null {
  if (isMissing(error)) return null;
  throw error;
}

/** Both are open directories; the kernel knows their present paths. */
function isWithin(root: number, directory: number): boolean {
  const [above, path] = [root, directory].map((descriptor) => readlinkSync(`/proc/self/fd/${descriptor}`));
  return path === above || path?.startsWith(`${above}/`) === true;
}
