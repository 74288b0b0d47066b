/**
 * The files of a run as Mastra's `WorkspaceFilesystem`: relative paths are below the workspace, and failures are thrown
 * as Mastra's own errors, which its tools can report.
 */

import type {
  CopyOptions,
  FileContent,
  FileEntry,
  FileStat,
  FilesystemInfo,
  ListOptions,
  ProviderStatus,
  ReadOptions,
  RemoveOptions,
  WalkEntry,
  WalkOptions,
  WorkspaceFilesystem,
  WriteOptions,
} from "@mastra/core/workspace";
import {
  DirectoryNotEmptyError,
  DirectoryNotFoundError,
  FileExistsError,
  FileNotFoundError,
  IsDirectoryError,
  NotDirectoryError,
  PermissionError,
  StaleFileError,
} from "@mastra/core/workspace";
import {
  DEFAULT_CWD,
  dateOf,
  type FileStat as FileFacts,
  isSandlotError,
  type Sandbox,
  SandlotError,
  SYSTEM_PATH,
} from "@sandlot/contract";
import { behindLinks, canonicalPath } from "../tools/links.ts";
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

  getInfo(): FilesystemInfo {
    const { id, name, provider, status } = this;
    return { id, name, provider, status, readOnly: false, metadata: { basePath: this.basePath } };
  }

  realpath(path: string): Promise<string> {
    return this.#use(path, true, (sandbox, at) => canonicalPath(sandbox, at));
  }

  async readFile(path: string, { encoding }: ReadOptions = {}): Promise<string | Buffer> {
    const bytes = Buffer.from(await this.#use(path, true, ({ files }, at) => files.read(at)));
    return encoding === undefined ? bytes : bytes.toString(encoding);
  }

  async writeFile(path: string, content: FileContent, options: WriteOptions = {}): Promise<void> {
    const { overwrite = true, recursive = true, expectedMtime } = options;
    await this.#use(path, false, async ({ files }, at) => {
      if (!recursive) await this.#needDirectory(parentOf(path));
      if (!overwrite) return files.write(at, content, { ifVersion: null });
      if (expectedMtime === undefined) return files.write(at, content);
      const there = await files.stat(at).catch(nullIfMissing);
      const modified = there === null ? null : dateOf(there.modifiedAt);
      if (modified !== null && modified.getTime() !== expectedMtime.getTime())
        throw new StaleFileError(path, expectedMtime, modified);
      return files.write(at, content, { ifVersion: there?.version ?? null });
    });
  }

  async appendFile(path: string, content: FileContent): Promise<void> {
    await this.#use(path, false, ({ files }, at) => files.append(at, content));
  }

  async deleteFile(path: string, { force = false }: RemoveOptions = {}): Promise<void> {
    await this.#use(path, false, async ({ files }, at) => {
      if ((await files.stat(at)).kind === "directory") throw new IsDirectoryError(path);
      await files.remove(at);
    }).catch(unlessMissing(force));
  }

  async rmdir(path: string, { recursive = false, force = false }: RemoveOptions = {}): Promise<void> {
    await this.#use(path, false, async ({ files }, at) => {
      if ((await files.stat(at)).kind !== "directory") throw new NotDirectoryError(path);
      await files.remove(at, { recursive });
    })
      .catch(unlessMissing(force))
      .catch(directoryMissing(path));
  }

  async copyFile(from: string, to: string, { overwrite = true, recursive = false }: CopyOptions = {}): Promise<void> {
    const source = await this.stat(from);
    if (source.type === "file") return this.#copyOne(from, to, overwrite);
    if (!recursive) throw new IsDirectoryError(from);
    await this.mkdir(to);
    for (const { path, type } of await this.walk(from, { includeHidden: true })) {
      const [source, target] = [`${from}/${path}`, `${to}/${path}`];
      if (type === "directory") await this.mkdir(target);
      // Within a directory, existing files stay, as in Mastra's own file system.
      else if (overwrite || !(await this.exists(target))) await this.#copyOne(source, target, overwrite);
    }
  }

  async moveFile(from: string, to: string, { overwrite = true }: CopyOptions = {}): Promise<void> {
    if (!overwrite && (await this.exists(to))) throw new FileExistsError(to);
    await this.mkdir(parentOf(to));
    await this.#use(from, false, ({ files }, at) => files.rename(at, absolutePath(to)));
  }

  async mkdir(path: string, { recursive = true }: { readonly recursive?: boolean } = {}): Promise<void> {
    await this.#use(path, false, async (sandbox, at) => {
      if (!recursive) await this.#needDirectory(parentOf(path));
      const there = await sandbox.files.stat(at).catch(nullIfMissing);
      if (there === null) return sandbox.files.mkdir(at);
      if (!(await isDirectory(sandbox, there))) throw new FileExistsError(path);
    });
  }

  async readdir(path: string, options: ListOptions = {}): Promise<FileEntry[]> {
    const { recursive = false, maxDepth = WALK_DEPTH_MAX, extension } = options;
    const wanted = extension === undefined ? null : [extension].flat().map((ending) => ending.replace(/^\.?/, "."));
    const entries = await this.#list(path, recursive ? Math.max(0, maxDepth) + 1 : 1);
    return entries
      .filter(({ name, type }) => wanted === null || type === "directory" || wanted.includes(extensionOf(name)))
      .map(({ path: name, ...entry }) => ({ ...entry, name }));
  }

  async walk(path: string, { maxDepth = WALK_DEPTH_MAX, includeHidden = false }: WalkOptions = {}) {
    const entries = await this.#list(path, Math.max(1, maxDepth));
    return entries.filter((entry) => includeHidden || !entry.path.split("/").some((part) => part.startsWith(".")));
  }

  async exists(path: string): Promise<boolean> {
    return this.stat(path).then(
      () => true,
      (error: unknown) => {
        if (error instanceof FileNotFoundError) return false;
        throw error;
      },
    );
  }

  /** Links are followed. */
  async stat(path: string): Promise<FileStat> {
    const { kind, sizeBytes, modifiedAt } = await this.#use(path, true, async (sandbox, at) =>
      sandbox.files.stat(await behindLinks(sandbox, at)),
    );
    const absolute = absolutePath(path);
    const modified = dateOf(modifiedAt);
    const type = kind === "directory" ? "directory" : "file";
    const size = type === "directory" ? 0 : sizeBytes;
    return { name: nameOf(absolute), path: absolute, type, size, createdAt: modified, modifiedAt: modified };
  }

  async #copyOne(from: string, to: string, overwrite: boolean): Promise<void> {
    const bytes = await this.#use(from, true, ({ files }, at) => files.read(at));
    await this.writeFile(to, bytes, { overwrite });
  }

  async #needDirectory(path: string): Promise<void> {
    const { type } = await this.stat(path).catch(directoryMissing(path));
    if (type !== "directory") throw new NotDirectoryError(path);
  }

  /** The content of a directory. More than one response can hold is an error, not a partial list. */
  #list(path: string, depth: number): Promise<WalkEntry[]> {
    return this.#use(path, true, async (sandbox, at) => {
      const { entries, truncated } = await sandbox.files.list(at, { depth });
      if (truncated)
        throw new SandlotError("invalid_request", {
          field: "path",
          problem: `there are more than ${entries.length} entries below it; look into its directories one by one`,
        });
      return Promise.all(entries.map((entry) => entryOf(sandbox, entry, at)));
    }).catch(directoryMissing(path));
  }

  async #use<T>(path: string, repeatable: boolean, action: (sandbox: Sandbox, at: string) => Promise<T>): Promise<T> {
    try {
      const at = absolutePath(path);
      const use = () => this.#run.use((sandbox) => action(sandbox, at), { repeatable });
      return await (repeatable ? use() : this.#run.turns.run(at, use));
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

function nullIfMissing(error: unknown): null {
  if (isSandlotError(error, "file_not_found")) return null;
  throw error;
}

/** A missing path is a directory, in Mastra's errors. */
function directoryMissing(path: string) {
  return (error: unknown): never => {
    throw error instanceof FileNotFoundError ? new DirectoryNotFoundError(path) : error;
  };
}

function unlessMissing(force: boolean) {
  return (error: unknown) => {
    if (!force || !(error instanceof FileNotFoundError)) throw error;
  };
}

async function entryOf(sandbox: Sandbox, facts: FileFacts, root: string): Promise<WalkEntry> {
  const path = facts.path.slice(root === "/" ? 1 : root.length + 1);
  const type = (await isDirectory(sandbox, facts)) ? ("directory" as const) : ("file" as const);
  const link = facts.kind === "symlink" ? { isSymlink: true } : {};
  return { path, name: nameOf(path), type, size: type === "directory" ? 0 : facts.sizeBytes, ...link };
}

/** Includes a link to a directory. */
async function isDirectory(sandbox: Sandbox, { path, kind }: FileFacts): Promise<boolean> {
  if (kind !== "symlink") return kind === "directory";
  return (await sandbox.exec(["test", "-d", path], { env: { PATH: SYSTEM_PATH } })).exitCode === 0;
}

function parentOf(path: string): string {
  const absolute = absolutePath(path);
  return absolute.slice(0, absolute.lastIndexOf("/")) || "/";
}

function extensionOf(name: string): string {
  return name.lastIndexOf(".") > 0 ? name.slice(name.lastIndexOf(".")) : "";
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
