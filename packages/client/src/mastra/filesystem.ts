/**
 * The files of a run as Mastra's `WorkspaceFilesystem`: relative paths are below the workspace, and what goes wrong is
 * thrown as Mastra's own errors, which its tools know how to tell.
 */

import type {
  CopyOptions,
  FileContent,
  FileEntry,
  FileStat,
  ListOptions,
  ProviderStatus,
  ReadOptions,
  RemoveOptions,
  WorkspaceFilesystem,
  WriteOptions,
} from "@mastra/core/workspace";
import {
  DirectoryNotEmptyError,
  FileExistsError,
  FileNotFoundError,
  IsDirectoryError,
  NotDirectoryError,
  PermissionError,
  StaleFileError,
} from "@mastra/core/workspace";
import { DEFAULT_CWD, type FileStat as FileFacts, isSandlotError, type SandboxFiles } from "@sandlot/contract";
import { absolutePath } from "../tools/paths.ts";
import type { SandboxRun } from "../tools/run.ts";

const WALK_DEPTH_MAX = 32;

export class SandlotWorkspaceFilesystem implements WorkspaceFilesystem {
  readonly id: string;
  readonly name = "Sandlot files";
  readonly provider = "sandlot";
  readonly basePath = DEFAULT_CWD;
  readonly #run: SandboxRun;

  constructor(run: SandboxRun, id: string) {
    this.#run = run;
    this.id = `${id}-files`;
  }

  get status(): ProviderStatus {
    return this.#run.isEnded() ? "destroyed" : "ready";
  }

  getInstructions(): string {
    return `Paths are absolute, or relative to ${DEFAULT_CWD}. Commands see the same files.`;
  }

  resolveAbsolutePath(path: string): string {
    return absolutePath(path);
  }

  async readFile(path: string, { encoding }: ReadOptions = {}): Promise<string | Buffer> {
    const bytes = Buffer.from(await this.#use(path, true, (files, at) => files.read(at)));
    return encoding === undefined ? bytes : bytes.toString(encoding);
  }

  async writeFile(path: string, content: FileContent, options: WriteOptions = {}): Promise<void> {
    const { overwrite = true, expectedMtime } = options;
    await this.#use(path, false, async (files, at) => {
      if (!overwrite) return files.write(at, content, { ifVersion: null });
      if (expectedMtime === undefined) return files.write(at, content);
      const { modifiedAt, version } = await files.stat(at);
      if (modifiedAt !== expectedMtime.getTime()) throw new StaleFileError(path, expectedMtime, new Date(modifiedAt));
      return files.write(at, content, { ifVersion: version });
    });
  }

  async appendFile(path: string, content: FileContent): Promise<void> {
    await this.#use(path, false, (files, at) => files.append(at, content));
  }

  async deleteFile(path: string, { force = false }: RemoveOptions = {}): Promise<void> {
    await this.#use(path, false, async (files, at) => {
      if ((await files.stat(at)).kind === "directory") throw new IsDirectoryError(path);
      await files.remove(at);
    }).catch(unlessMissing(force));
  }

  async rmdir(path: string, { recursive = false, force = false }: RemoveOptions = {}): Promise<void> {
    await this.#use(path, false, async (files, at) => {
      if ((await files.stat(at)).kind !== "directory") throw new NotDirectoryError(path);
      await files.remove(at, { recursive });
    }).catch(unlessMissing(force));
  }

  async copyFile(from: string, to: string, { overwrite = true }: CopyOptions = {}): Promise<void> {
    const bytes = await this.#use(from, true, (files, at) => files.read(at));
    await this.writeFile(to, bytes, { overwrite });
  }

  async moveFile(from: string, to: string, { overwrite = true }: CopyOptions = {}): Promise<void> {
    if (!overwrite && (await this.exists(to))) throw new FileExistsError(to);
    await this.#use(from, false, (files, at) => files.rename(at, absolutePath(to)));
  }

  async mkdir(path: string): Promise<void> {
    await this.#use(path, false, (files, at) => files.mkdir(at));
  }

  async readdir(path: string, options: ListOptions = {}): Promise<FileEntry[]> {
    const { recursive = false, maxDepth = WALK_DEPTH_MAX, extension } = options;
    const wanted = extension === undefined ? null : [extension].flat().map((ending) => ending.replace(/^\.?/, "."));
    const depth = recursive ? Math.max(1, maxDepth) : 1;
    const { entries } = await this.#use(path, true, (files, at) => files.list(at, { depth }));
    const root = absolutePath(path);
    return entries
      .filter(
        ({ path: entry, kind }) =>
          wanted === null || kind === "directory" || wanted.some((ending) => entry.endsWith(ending)),
      )
      .map((entry) => entryOf(entry, root));
  }

  async exists(path: string): Promise<boolean> {
    return this.#use(path, true, async (files, at) => {
      await files.stat(at);
      return true;
    }).catch((error: unknown) => {
      if (error instanceof FileNotFoundError) return false;
      throw error;
    });
  }

  async stat(path: string): Promise<FileStat> {
    const { kind, sizeBytes, modifiedAt, path: absolute } = await this.#use(path, true, (files, at) => files.stat(at));
    const modified = new Date(modifiedAt);
    const type = kind === "directory" ? "directory" : "file";
    return { name: nameOf(absolute), path: absolute, type, size: sizeBytes, createdAt: modified, modifiedAt: modified };
  }

  async #use<T>(
    path: string,
    repeatable: boolean,
    action: (files: SandboxFiles, at: string) => Promise<T>,
  ): Promise<T> {
    try {
      return await this.#run.use(({ files }) => action(files, absolutePath(path)), { repeatable });
    } catch (error) {
      throw asMastra(error, path);
    }
  }
}

function asMastra(error: unknown, path: string): unknown {
  if (isSandlotError(error, "file_not_found")) return new FileNotFoundError(path);
  if (isSandlotError(error, "is_a_directory")) return new IsDirectoryError(path);
  if (isSandlotError(error, "not_a_directory")) return new NotDirectoryError(path);
  if (isSandlotError(error, "directory_not_empty")) return new DirectoryNotEmptyError(path);
  if (isSandlotError(error, "permission_denied") || isSandlotError(error, "read_only_path"))
    return new PermissionError(path, "use");
  if (isSandlotError(error, "file_exists")) return new FileExistsError(path);
  if (isSandlotError(error, "file_changed") && error.details.expected === null) return new FileExistsError(path);
  return error;
}

function unlessMissing(force: boolean) {
  return (error: unknown) => {
    if (!force || !(error instanceof FileNotFoundError)) throw error;
  };
}

function entryOf({ path, kind, sizeBytes }: FileFacts, root: string): FileEntry {
  const name = path.slice(root === "/" ? 1 : root.length + 1);
  const type = kind === "directory" ? "directory" : "file";
  return { name, type, size: sizeBytes, ...(kind === "symlink" ? { isSymlink: true } : {}) };
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
