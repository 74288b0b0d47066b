/**
 * Writes files and whole directories from the store into a draft directory, out of every sandbox's reach, with account,
 * mode and time. The caller renames them to their place. Every object is checked when it is read.
 */

import { constants } from "node:fs";
import { SandlotError } from "@sandlot/contract";
import type { Account } from "../../workspaces/tree.ts";
import type { PathFilter } from "../compare/compare.ts";
import { at, calls, closing, ofDescriptor, secondsOf, writeAll } from "../store/calls.ts";
import { DamagedObject } from "../store/packs.ts";
import {
  CHUNK_BYTES,
  type DirectoryEntry,
  type Entry,
  type FileEntry,
  KIND,
  piecesOf,
  treeEntries,
} from "../store/tree-format.ts";
import { join, textOf } from "../take/path-list.ts";

export const OPEN_INSIDE = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
export const OPEN_NEW = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;

export interface BuilderOptions {
  readonly read: (hash: Buffer, into?: Buffer) => Buffer;
  readonly account: Account;
  /** For errors. */
  readonly checkpoint: string;
  /** So many files wait for the disk one by one. */
  readonly syncEachMax: number;
  readonly onProgress: (files: number, bytes: number) => void;
}

export class Builder {
  readonly #options: BuilderOptions;
  readonly #buffer = Buffer.allocUnsafeSlow(CHUNK_BYTES);
  files = 0;
  bytes = 0;

  constructor(options: BuilderOptions) {
    this.#options = options;
  }

  /** `path` is the entry's own in the workspace. */
  build(parent: number, name: string, entry: Entry, path: string, filter: PathFilter): void {
    this.files++;
    if (entry.kind === KIND.file) this.#file(parent, name, entry, path);
    else if (entry.kind === KIND.link) this.#link(parent, name, entry.target, entry.modified);
    else this.#directory(parent, name, entry, path, filter);
    this.#options.onProgress(this.files, this.bytes);
  }

  /** Mode and time of a directory, when everything below it is done. */
  settle(descriptor: number, { mode, modified }: DirectoryEntry): void {
    const path = `${ofDescriptor(descriptor)}/.`;
    calls.chmod(path, mode);
    calls.utimes(path, secondsOf(modified));
  }

  own(descriptor: number): void {
    const { account } = this.#options;
    if (account !== null) calls.fchown(descriptor, account.uid, account.gid);
  }

  #file(parent: number, name: string, entry: FileEntry, path: string): void {
    const descriptor = calls.open(at(parent, name), OPEN_NEW, entry.mode);
    closing(descriptor, () => {
      let position = 0;
      let isSparse = false;
      for (const { hash, zeros } of piecesOf(entry.content)) {
        if (hash === null) {
          position += zeros * CHUNK_BYTES;
          isSparse = true;
          continue;
        }
        const bytes = this.#read(hash, path);
        if (isSparse) this.#writeAt(descriptor, bytes, position);
        else writeAll(descriptor, bytes);
        position += bytes.length;
        this.bytes += bytes.length;
        this.#options.onProgress(this.files, this.bytes);
      }
      if (isSparse) calls.ftruncate(descriptor, entry.size);
      this.own(descriptor);
      calls.futimes(descriptor, secondsOf(entry.modified));
      if (this.files <= this.#options.syncEachMax) calls.fsync(descriptor);
    });
  }

  #writeAt(descriptor: number, bytes: Buffer, position: number): void {
    for (let done = 0; done < bytes.length; )
      done += calls.writeAt(descriptor, bytes, done, bytes.length - done, position + done);
  }

  #link(parent: number, name: string, target: string, modified: bigint): void {
    const path = at(parent, name);
    calls.symlink(target, path);
    const { account } = this.#options;
    if (account !== null) calls.lchown(path, account.uid, account.gid);
    calls.lutimes(path, secondsOf(modified));
  }

  #directory(parent: number, name: string, entry: DirectoryEntry, path: string, filter: PathFilter): void {
    calls.mkdir(at(parent, name), 0o700);
    closing(calls.open(at(parent, name), OPEN_INSIDE), (descriptor) => {
      for (const child of this.entries(entry.hash, path)) {
        const below = join(path, child.name);
        if (filter.matches(below) !== "no") this.build(descriptor, child.name, child, below, filter);
      }
      this.own(descriptor);
      this.settle(descriptor, entry);
    });
  }

  entries(hash: Buffer, path: string): Entry[] {
    try {
      return [...treeEntries((wanted) => this.#options.read(wanted), hash)];
    } catch (error) {
      throw damaged(error, this.#options.checkpoint, path);
    }
  }

  #read(hash: Buffer, path: string): Buffer {
    try {
      return this.#options.read(hash, this.#buffer);
    } catch (error) {
      throw damaged(error, this.#options.checkpoint, path);
    }
  }
}

export function damaged(error: unknown, checkpoint: string, path: string): unknown {
  if (!(error instanceof DamagedObject)) return error;
  return new SandlotError("checkpoint_damaged", { checkpoint, path: textOf(path), problem: error.message });
}
