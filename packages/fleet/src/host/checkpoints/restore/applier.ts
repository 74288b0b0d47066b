/**
 * Makes a workspace like a stored tree, in place. No sandbox uses it meanwhile.
 *
 * Invariants
 * - New content is written in a draft directory and renamed in. Nothing is written into an existing file: it may have
 *   other names.
 * - What goes is renamed into the trash. No link is followed: every directory is opened below its parent's descriptor.
 * - Renames come in batches; `step` runs each one, and looks at the fence before it.
 * - Where it was killed, it can begin again: it compares what is there.
 */

import type { ThreadKey } from "@sandlot/contract";
import { errnoOf } from "../../../world/disk-trouble.ts";
import { ALL, directoryOf, hasSameContent, isEqual, type PathFilter, pairs } from "../compare/compare.ts";
import { at, calls, ofDescriptor } from "../store/calls.ts";
import { type DirectoryEntry, type Entry, KIND } from "../store/tree-format.ts";
import { join } from "../take/path-list.ts";
import { type Builder, damaged, OPEN_INSIDE } from "./builder.ts";
import type { Protected } from "./protected.ts";

export interface ApplierOptions {
  readonly read: (hash: Buffer, into?: Buffer) => Buffer;
  readonly builder: Builder;
  readonly checkpoint: string;
  readonly thread: ThreadKey;
  /** Open, empty, on the same mount. */
  readonly drafts: number;
  readonly trashEntry: () => string;
  readonly step: (work: () => void) => Promise<void>;
  readonly filter: PathFilter;
  readonly guarded: Protected;
  /** Files that share an inode with one that they must not share it with. */
  readonly apart: Protected;
  /** Directories whose names were changed; for the disk. */
  readonly onChanged: (descriptor: number) => void;
}

const BATCH = 100;
const OPEN_MAX = 200;

interface Directory {
  readonly descriptor: number;
  readonly path: string;
  /** Its owner may write in it; checked once, before the first change. */
  isOpened: boolean;
}

export class Applier {
  readonly #options: ApplierOptions;
  #batch: (() => void)[] = [];
  #closing: number[] = [];
  #drafts = 0;
  changed = 0;

  constructor(options: ApplierOptions) {
    this.#options = options;
  }

  /** Differences between what is there and the target. */
  async apply(root: number, present: Buffer, target: Buffer): Promise<void> {
    await this.#directory({ descriptor: root, path: "", isOpened: true }, present, target);
    await this.flush();
  }

  async flush(): Promise<void> {
    const batch = this.#batch;
    this.#batch = [];
    for (let first = 0; first < batch.length; first += BATCH)
      await this.#options.step(() => {
        for (const work of batch.slice(first, first + BATCH)) work();
      });
    for (const descriptor of this.#closing) calls.close(descriptor);
    this.#closing = [];
  }

  /** After a failure. */
  close(): void {
    for (const descriptor of this.#closing) calls.close(descriptor);
    this.#closing = [];
  }

  /** Renames a finished draft over whatever has the name. */
  place(directory: Directory, draft: string, name: string, mustGo: boolean): void {
    const { drafts } = this.#options;
    this.#change(directory, () => {
      if (mustGo) this.#toTrash(directory.descriptor, name);
      try {
        calls.rename(at(drafts, draft), at(directory.descriptor, name));
      } catch (error) {
        // Something that no checkpoint keeps has the name.
        if (!["EISDIR", "ENOTDIR", "ENOTEMPTY", "EEXIST"].includes(errnoOf(error) ?? "")) throw error;
        this.#toTrash(directory.descriptor, name);
        calls.rename(at(drafts, draft), at(directory.descriptor, name));
      }
    });
  }

  draftName(): string {
    return `d${++this.#drafts}`;
  }

  async #directory(directory: Directory, before: Buffer | null, after: Buffer | null): Promise<void> {
    const { filter, guarded, read, checkpoint } = this.#options;
    try {
      for (const { name, before: a, after: b } of pairs(read, before, after)) {
        const path = join(directory.path, name);
        const matches = filter.matches(path);
        if (matches === "no" || guarded.has(path)) continue;
        if (matches === "yes") await this.#name(directory, name, path, a, b);
        else await this.#onTheWay(directory, name, path, a, b);
        if (this.#batch.length >= BATCH || this.#closing.length >= OPEN_MAX) await this.flush();
      }
    } catch (error) {
      throw damaged(error, checkpoint, directory.path);
    }
  }

  async #name(directory: Directory, name: string, path: string, a: Entry | null, b: Entry | null): Promise<void> {
    const { guarded } = this.#options;
    if (b === null) {
      if (a === null) return;
      // What is guarded in it stays, and so does the directory.
      if (a.kind === KIND.directory && guarded.isAbove(path)) await this.#into(directory, name, path, a, null);
      else this.#change(directory, () => this.#toTrash(directory.descriptor, name));
    } else if (a?.kind === KIND.directory && b.kind === KIND.directory) await this.#both(directory, name, path, a, b);
    else if (a === null || !isSame(a, b) || this.#options.apart.has(path)) this.#put(directory, name, path, a, b, ALL);
  }

  async #onTheWay(directory: Directory, name: string, path: string, a: Entry | null, b: Entry | null): Promise<void> {
    if (a?.kind === KIND.directory) await this.#into(directory, name, path, a, directoryOf(b));
    else if (b?.kind === KIND.directory) this.#put(directory, name, path, a, b, this.#options.filter);
  }

  async #both(directory: Directory, name: string, path: string, a: DirectoryEntry, b: DirectoryEntry): Promise<void> {
    const hasSameContent = a.hash.equals(b.hash) && !this.#options.apart.isAbove(path);
    if (hasSameContent && a.mode === b.mode && a.modified === b.modified) return;
    const child = this.#open(directory, name, path, a);
    if (!hasSameContent) await this.#directory(child, a.hash, b.hash);
    // After everything below: a change below sets the time again.
    this.#batch.push(() => this.#options.builder.settle(child.descriptor, b));
    this.#closing.push(child.descriptor);
  }

  async #into(
    directory: Directory,
    name: string,
    path: string,
    a: DirectoryEntry,
    after: Buffer | null,
  ): Promise<void> {
    const child = this.#open(directory, name, path, a);
    await this.#directory(child, a.hash, after);
    this.#closing.push(child.descriptor);
  }

  #put(directory: Directory, name: string, path: string, a: Entry | null, b: Entry, filter: PathFilter): void {
    const { builder, drafts } = this.#options;
    const draft = this.draftName();
    builder.build(drafts, draft, b, path, filter);
    const mustGo = a !== null && (a.kind === KIND.directory || b.kind === KIND.directory);
    this.place(directory, draft, name, mustGo);
  }

  #open(directory: Directory, name: string, path: string, { mode }: DirectoryEntry): Directory {
    const descriptor = calls.open(at(directory.descriptor, name), OPEN_INSIDE);
    return { descriptor, path, isOpened: (mode & 0o700) === 0o700 };
  }

  #change(directory: Directory, work: () => void): void {
    this.changed++;
    this.#batch.push(() => {
      if (!directory.isOpened) calls.chmod(`${ofDescriptor(directory.descriptor)}/.`, 0o700);
      directory.isOpened = true;
      work();
      this.#options.onChanged(directory.descriptor);
    });
  }

  #toTrash(parent: number, name: string): void {
    const from = at(parent, name);
    if (calls.lstat(from) === undefined) return;
    const to = this.#options.trashEntry();
    try {
      calls.rename(from, to);
    } catch (error) {
      // A directory that its owner may not write cannot change its parent, except by root.
      if (errnoOf(error) !== "EACCES") throw error;
      const descriptor = calls.open(from, OPEN_INSIDE);
      calls.chmod(`${ofDescriptor(descriptor)}/.`, 0o700);
      calls.close(descriptor);
      calls.rename(from, to);
    }
  }
}

/** Times of files count here, for no other reason than that they are kept. */
function isSame(a: Entry, b: Entry): boolean {
  return isEqual(a, b) && a.modified === b.modified && hasSameContent(a, b);
}
