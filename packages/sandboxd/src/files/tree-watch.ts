/**
 * Changes below a directory, or of one file.
 *
 * The kernel watches single directories, so each directory of a tree has its own watch. The known names are remembered:
 * this distinguishes an appearance from a change, and a removal from a rename elsewhere.
 *
 * Invariants
 * - A directory that appears is watched first and read after, so nothing that is put into it is missed.
 * - Unseen changes are reported as `overflow`: more directories than may be watched, or more changes in one turn than
 *   the kernel can hold. After that the tree is read again and its content counts as known.
 * - Symbolic links are not followed. The home is left out unless the watch begins in it (`unlisted.ts`).
 */

import { type FSWatcher, lstatSync, readdirSync, readFileSync, type Stats, watch } from "node:fs";
import { basename, dirname } from "node:path/posix";
import { type FileChange, SandlotError } from "@sandlot/contract";
import { nextTurn } from "../clock.ts";
import { join } from "./paths.ts";
import { isTemporary } from "./temporary.ts";
import { unlisted } from "./unlisted.ts";

/** Each costs the kernel about a kilobyte, and the number per user is limited. */
const DIRECTORIES_MAX = 8_192;
const NAMES_MAX = 200_000;
const QUEUE_LIMIT_FILE = "/proc/sys/fs/inotify/max_queued_events";
const QUEUE_LIMIT_DEFAULT = 16_384;

/** Other watchers keep their watches; a program that ends releases them. */
const RETRY_AFTER_MS = 5_000;

interface Directory {
  readonly watcher: FSWatcher;
  /** Its entries; `true` for a directory. */
  readonly names: Map<string, boolean>;
}

/** For watches these errors have another meaning than for files. */
const LIMITS: Readonly<Record<string, string>> = {
  EMFILE: "the account of the sandbox has as many inotify instances as it may (fs.inotify.max_user_instances)",
  ENFILE: "the machine has as many open files as it may (fs.file-max)",
  ENOSPC: "the account of the sandbox has as many inotify watches as it may (fs.inotify.max_user_watches)",
};

export class TreeWatch {
  readonly #tell: (change: FileChange) => void;
  readonly #gone: () => void;
  readonly #recursive: boolean;
  /** When one file is watched: its name in its directory. */
  readonly #only: string | null;
  readonly #root: string;
  readonly #unlisted: ReadonlySet<string>;
  readonly #directories = new Map<string, Directory>();
  #nameCount = 0;
  #closed = false;
  #rescanDue = false;

  /** Throws the kernel's error about the root. `gone` is called when the root itself is removed. */
  constructor(path: string, recursive: boolean, tell: (change: FileChange) => void, gone: () => void) {
    this.#tell = tell;
    this.#gone = gone;
    const isDirectory = lstatSync(path).isDirectory();
    this.#only = isDirectory ? null : basename(path);
    this.#recursive = isDirectory && recursive;
    this.#root = isDirectory ? path : dirname(path);
    this.#unlisted = new Set(isDirectory ? unlisted(path).map((relative) => join(path, relative)) : []);
    this.#enter(this.#root, false, true);
  }

  close(): void {
    this.#closed = true;
    for (const { watcher } of this.#directories.values()) watcher.close();
    this.#directories.clear();
  }

  /** Watches a directory and everything below; reports its content when it is new. */
  #enter(path: string, isNew: boolean, isRoot = false): void {
    if (this.#closed || this.#directories.has(path)) return;
    if (this.#directories.size >= DIRECTORIES_MAX || this.#nameCount >= NAMES_MAX) {
      this.#overflow(path);
      return;
    }
    let watcher: FSWatcher;
    try {
      watcher = watch(path, { persistent: false });
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (isRoot) throw watchError(error, path);
      // Gone again: its parent's watch reports the removal.
      if (code !== "ENOENT" && code !== "ENOTDIR") this.#overflow(path);
      return;
    }
    const directory: Directory = { watcher, names: new Map() };
    this.#directories.set(path, directory);
    watcher.on("change", (_event, name) => this.#noticed(path, directory, String(name)));
    watcher.on("error", () => this.#overflow(path));
    this.#read(path, directory, isNew);
  }

  #read(path: string, directory: Directory, isNew: boolean): void {
    for (const { name, isDirectory } of entries(path)) {
      if (this.#only !== null && name !== this.#only) continue;
      if (directory.names.has(name) || this.#unlisted.has(join(path, name))) continue;
      this.#appeared(path, directory, name, isDirectory, isNew);
    }
  }

  #appeared(path: string, directory: Directory, name: string, isDirectory: boolean, tell: boolean): void {
    directory.names.set(name, isDirectory);
    this.#nameCount++;
    const full = join(path, name);
    if (tell) this.#tell({ type: "created", path: full });
    if (isDirectory && this.#recursive) this.#enter(full, tell);
  }

  #noticed(path: string, directory: Directory, name: string): void {
    if (this.#closed || (this.#only !== null && name !== this.#only)) return;
    if (burst.isOver()) this.#overflow(path);
    // It was never reported, so neither is its end.
    if (isTemporary(name)) return;
    const full = join(path, name);
    if (this.#unlisted.has(full)) return;
    const found = look(full);
    const known = directory.names.get(name);
    if (found === undefined) {
      // The kernel also names a directory to itself when it is removed.
      if (known !== undefined) this.#vanished(directory, full, name, known);
      this.#checkRoot();
      return;
    }
    const isDirectory = found.isDirectory();
    if (known === undefined) this.#appeared(path, directory, name, isDirectory, true);
    else if (known !== isDirectory || (isDirectory && this.#recursive && !this.#directories.has(full))) {
      this.#vanished(directory, full, name, known);
      this.#appeared(path, directory, name, isDirectory, true);
    } else if (!isDirectory) this.#tell({ type: "modified", path: full });
  }

  #vanished(directory: Directory, full: string, name: string, wasDirectory: boolean): void {
    directory.names.delete(name);
    this.#nameCount--;
    if (wasDirectory) this.#leave(full);
    this.#tell({ type: "removed", path: full });
  }

  /** Everything below is gone too, and reported from the inside out, as a removal would do it. */
  #leave(path: string): void {
    const directory = this.#directories.get(path);
    if (directory === undefined) return;
    this.#directories.delete(path);
    directory.watcher.close();
    for (const [name, isDirectory] of directory.names) this.#vanished(directory, join(path, name), name, isDirectory);
  }

  #checkRoot(): void {
    if (this.#closed || look(this.#root) !== undefined) return;
    if (this.#only === null) this.#tell({ type: "removed", path: this.#root });
    this.#gone();
  }

  /** Reports it, and after this turn takes the present content as known. */
  #overflow(path: string): void {
    this.#tell({ type: "overflow", path });
    if (this.#rescanDue) return;
    this.#rescanDue = true;
    void nextTurn().then(() => {
      this.#rescanDue = false;
      for (const [where, directory] of this.#directories) this.#refresh(where, directory);
    });
  }

  #refresh(path: string, directory: Directory): void {
    const present = new Map(entries(path).map(({ name, isDirectory }) => [name, isDirectory]));
    for (const [name, wasDirectory] of directory.names) {
      if (present.get(name) === wasDirectory) continue;
      directory.names.delete(name);
      this.#nameCount--;
      if (wasDirectory) this.#leave(join(path, name));
    }
    if (this.#directories.size < DIRECTORIES_MAX && this.#nameCount < NAMES_MAX) this.#read(path, directory, false);
  }
}

/** Counts the kernel's events of one turn: a full queue means that more may have been lost. */
const burst = {
  count: 0,
  limit: 0,
  isOver(): boolean {
    if (this.count === 0) {
      void nextTurn().then(() => {
        this.count = 0;
      });
      this.limit ||= queueLimit();
    }
    this.count++;
    return this.count % this.limit === 0;
  },
};

/** `undefined`: missing, or not permitted. */
function look(path: string): Stats | undefined {
  try {
    return lstatSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

function queueLimit(): number {
  try {
    return Number(readFileSync(QUEUE_LIMIT_FILE, "latin1")) || QUEUE_LIMIT_DEFAULT;
  } catch {
    return QUEUE_LIMIT_DEFAULT;
  }
}

function entries(path: string): { name: string; isDirectory: boolean }[] {
  try {
    return readdirSync(path, { withFileTypes: true })
      .filter(({ name }) => !isTemporary(name))
      .map((entry) => ({ name: entry.name, isDirectory: entry.isDirectory() }));
  } catch {
    return [];
  }
}

function watchError(error: unknown, path: string): unknown {
  const problem = LIMITS[(error as NodeJS.ErrnoException).code ?? ""];
  if (problem === undefined) return error;
  return new SandlotError("watch_limit", { path, problem, retryAfterMs: RETRY_AFTER_MS }, { cause: error });
}
