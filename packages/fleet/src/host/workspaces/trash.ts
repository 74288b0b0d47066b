/**
 * Removes trees that a sandbox has filled.
 *
 * A tree is first renamed into the trash, out of reach, and then taken apart: a non-empty directory is itself renamed
 * into the trash and comes next. So depth costs neither descriptors nor stack, a crash leaves only trash, and several
 * processes may take the same tree apart.
 *
 * Invariants
 * - No symbolic link is followed: every name is removed, or moved, relative to its parent's descriptor.
 * - No mount point is crossed: a directory is entered only below the trash, and a mount point cannot be renamed.
 * - An entry's name begins with its owner, so that a purge finds what is left of a thread.
 */

import { chmod, type FileHandle, lstat, open, opendir, readdir, rename, rmdir, unlink } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf, inOurWords, isMissing, unlessMissing } from "../../world/disk-trouble.ts";
import type { World } from "../../world/world.ts";
import { fdBytePath, fdPath, OPEN_DIRECTORY } from "../descriptors.ts";
import { moveTree } from "./tree.ts";

/** How many names are removed at once. More would only queue up behind Node's few file threads. */
const BATCH = 32;
/** One pass removes everything and the next finds nothing; the trash's content cannot grow. */
const PASSES_MAX = 100;
const OWNER_RWX = 0o700;

export class Trash {
  readonly #directory: string;
  readonly #world: Pick<World, "randomHex">;
  readonly #running = new Map<string, Promise<void>>();

  constructor(directory: string, world: Pick<World, "randomHex">) {
    this.#directory = directory;
    this.#world = world;
  }

  /** Takes a path out of reach, with one rename. A missing path is fine. */
  throwAway(path: string, owner: string): void {
    unlessMissing(() => moveTree(path, this.entry(owner)));
  }

  /** Removes the owner's trash, or everything. Rejects when something could not be removed; it stays. */
  async empty(owner?: string): Promise<void> {
    const failures = new Map<string, unknown>();
    for (;;) {
      const entries = (await readdir(this.#directory)).filter(
        (name) => (owner === undefined || ownerOf(name) === owner) && !failures.has(name),
      );
      if (entries.length === 0) break;
      for (const name of entries) {
        try {
          await this.#once(name);
        } catch (error) {
          failures.set(name, error);
        }
      }
    }
    for (const [name, error] of failures) throw inOurWords(error, join(this.#directory, name));
  }

  /** Two callers in one process share the work. */
  #once(name: string): Promise<void> {
    const running = this.#running.get(name) ?? this.#remove(name).finally(() => this.#running.delete(name));
    this.#running.set(name, running);
    return running;
  }

  async #remove(name: string): Promise<void> {
    const path = join(this.#directory, name);
    try {
      if (!(await lstat(path)).isDirectory()) return await unlink(path);
      const directory = await open(path, OPEN_DIRECTORY);
      try {
        await ownerMayAll(directory);
        for (let passes = 1; await this.#clear(directory.fd, ownerOf(name)); passes++) {
          if (passes >= PASSES_MAX) throw new Error(`${path} still has entries after ${passes} passes`);
        }
      } finally {
        await directory.close();
      }
      await rmdir(path);
    } catch (error) {
      // Another process takes the same tree apart.
      if (!isMissing(error)) throw error;
    }
  }

  /** Removes every name once; true when there was any. Throws the reason when a name cannot be removed. */
  async #clear(descriptor: number, owner: string): Promise<boolean> {
    const failures: unknown[] = [];
    let batch: Promise<unknown>[] = [];
    let any = false;
    try {
      for await (const entry of await opendir(fdPath(descriptor), { encoding: "latin1", bufferSize: BATCH * 8 })) {
        any = true;
        batch.push(this.#removeName(descriptor, entry.name, owner).catch((error: unknown) => failures.push(error)));
        if (batch.length < BATCH) continue;
        await Promise.all(batch);
        batch = [];
        if (failures.length > 0) break;
      }
    } finally {
      // In any case: the descriptor must stay open while its number is in use.
      await Promise.all(batch);
    }
    if (failures.length > 0) throw failures[0];
    return any;
  }

  async #removeName(parent: number, name: string, owner: string): Promise<void> {
    const path = fdBytePath(parent, name);
    try {
      if (!(await lstat(path)).isDirectory()) return await unlink(path);
      await this.#removeDirectory(path, owner);
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
  }

  async #removeDirectory(path: Buffer, owner: string): Promise<void> {
    try {
      return await rmdir(path);
    } catch (error) {
      const errno = errnoOf(error);
      if (errno !== "ENOTEMPTY" && errno !== "EEXIST") throw error;
    }
    try {
      await rename(path, this.entry(owner));
    } catch (error) {
      // A directory that its owner may not write cannot change its parent, except by root.
      if (errnoOf(error) !== "EACCES") throw error;
      const directory = await open(path, OPEN_DIRECTORY);
      try {
        await ownerMayAll(directory);
      } finally {
        await directory.close();
      }
      await rename(path, this.entry(owner));
    }
  }

  /** A new name in the trash, to rename something to. */
  entry(owner: string): string {
    return join(this.#directory, `${owner}.${this.#world.randomHex(8)}`);
  }
}

/** A sandbox may remove its own rights to a directory; removing the directory needs them. */
async function ownerMayAll(directory: FileHandle): Promise<void> {
  const { mode } = await directory.stat();
  if ((mode & OWNER_RWX) !== OWNER_RWX) await chmod(fdPath(directory.fd), OWNER_RWX);
}

function ownerOf(entry: string): string {
  return entry.slice(0, entry.indexOf("."));
}
