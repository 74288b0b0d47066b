/**
 * Walks a workspace that a sandbox may be changing, and stores what is new of it.
 *
 * Invariants
 * - Every name is opened relative to its parent's descriptor, and no link is followed. What is read is what `fstat` says
 *   of the opened descriptor, never what a look at the name said before.
 * - Opening never blocks: a FIFO in a file's place is opened without waiting, and closed unread.
 * - Memory is that of one directory, the path to it, and the hard links seen.
 * - A name that vanishes meanwhile was never there.
 */

import type { BigIntStats } from "node:fs";
import { constants } from "node:fs";
import { errnoOf, isMissing } from "../../../world/disk-trouble.ts";
import { isDraft } from "../../../world/drafts.ts";
import { at, calls, ofDescriptor } from "../store/calls.ts";
import type { PackWriter } from "../store/pack-writer.ts";
import { OBJECT } from "../store/packs.ts";
import { Bytes, type Entry, type FileEntry, KIND, TreeBuilder, treeEntries } from "../store/tree-format.ts";
import { Changed, FileReader } from "./file-reader.ts";
import { HardLinks } from "./hard-links.ts";
import { join, PathList } from "./path-list.ts";
import {
  addDirectory,
  addFile,
  type Block,
  type BlockPlace,
  type IndexReader,
  type IndexWriter,
} from "./stat-index.ts";

export interface WalkOptions {
  readonly writer: PackWriter;
  readonly oldIndex: IndexReader | null;
  readonly newIndex: IndexWriter | null;
  /** Latin-1 paths that are left out without a word. */
  readonly excluded: ReadonlySet<string>;
  /** What changed at this time (nanoseconds) or later may change again without a trace. `null`: nothing is settled. */
  readonly settledBefore: bigint | null;
  readonly isAllRead: boolean;
  readonly readBytesMax: number;
  /** Holes are known by their allocated blocks. */
  readonly holesAreKnown: boolean;
  /**
   * A tree that was just written, and when (nanoseconds): a file with its size and time that has changed since then is
   * what was written. Only while nothing else can write.
   */
  readonly written?: { readonly tree: Buffer; readonly since: bigint } | undefined;
  readonly onProgress: (files: number, bytes: number) => void;
}

export interface Walked {
  readonly tree: Buffer;
  /** The table of hard links; `null` where there are none. */
  readonly links: Buffer | null;
  readonly fileCount: number;
  readonly sizeBytes: number;
  readonly readBytes: number;
  readonly torn: PathList;
  readonly leftOut: PathList;
  /** Where the new index has the root. */
  readonly rootBlock: BlockPlace | null;
}

/** Each level holds a descriptor. */
const DEPTH_MAX = 700;
const LOOKS_MAX = 3;
const PROGRESS_EVERY = 512;
const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;
const OPEN_LISTED = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
const S_IFMT = 0o170000n;
const S_IFREG = 0o100000n;
const S_IFDIR = 0o040000n;
const S_IFLNK = 0o120000n;

export function walk(root: number, options: WalkOptions): Walked {
  return new Walker(options).walk(root);
}

class Walker {
  readonly #options: WalkOptions;
  readonly #files: FileReader;
  readonly #links = new HardLinks();
  readonly #torn = new PathList();
  readonly #leftOut = new PathList();
  #device = 0n;
  #fileCount = 0;
  #sizeBytes = 0;
  #sinceProgress = 0;

  constructor(options: WalkOptions) {
    this.#options = options;
    this.#files = new FileReader(options);
  }

  walk(root: number): Walked {
    const { oldIndex, newIndex, writer, written } = this.#options;
    this.#device = calls.fstat(root).dev;
    const old = oldIndex === null ? null : oldIndex.block(oldIndex.root);
    const { hash, block } = this.#directory(root, "", 0, old, written?.tree ?? null);
    const rootBlock = newIndex?.block(block.view()) ?? null;
    const table = this.#links.table();
    return {
      tree: hash,
      links: table === null ? null : writer.put(OBJECT.table, table),
      fileCount: this.#fileCount,
      sizeBytes: this.#sizeBytes,
      readBytes: this.#files.readBytes,
      torn: this.#torn,
      leftOut: this.#leftOut,
      rootBlock,
    };
  }

  #directory(
    descriptor: number,
    path: string,
    depth: number,
    old: Block | null,
    written: Buffer | null,
  ): { readonly hash: Buffer; readonly block: Bytes } {
    const { writer, excluded } = this.#options;
    const tree = new TreeBuilder((bytes) => writer.put(OBJECT.tree, bytes));
    const block = new Bytes();
    const names = calls.readdir(ofDescriptor(descriptor));
    names.sort(byBytes);
    const expected = written === null ? null : entryReader(writer, written);
    for (const name of names) {
      const below = join(path, name);
      if (isDraft(name) || excluded.has(below)) continue;
      const entry = this.#entry(descriptor, name, below, depth, old, block, expected?.(name) ?? null);
      if (entry !== null) tree.add(entry);
    }
    return { hash: tree.end(), block };
  }

  #entry(
    parent: number,
    name: string,
    path: string,
    depth: number,
    old: Block | null,
    block: Bytes,
    expected: Entry | null,
  ): Entry | null {
    for (let looks = 1; ; looks++) {
      const stat = calls.lstat(at(parent, name));
      if (stat === undefined) return null;
      try {
        switch (stat.mode & S_IFMT) {
          case S_IFREG:
            return this.#file(parent, name, path, stat, old, block, expected, looks >= LOOKS_MAX);
          case S_IFDIR:
            return this.#subdirectory(parent, name, path, depth, stat, old, block, expected);
          case S_IFLNK: {
            const target = calls.readlink(at(parent, name));
            this.#count(0);
            return { name, kind: KIND.link, mode: 0o777, modified: stat.mtimeNs / 1000n, target };
          }
          default:
            this.#leftOut.add(path);
            return null;
        }
      } catch (error) {
        // Another kind of file has the name by now.
        const isOther =
          error instanceof Changed || ["ENOTDIR", "ELOOP", "EINVAL", "ENXIO"].includes(errnoOf(error) ?? "");
        if (isMissing(error) && errnoOf(error) !== "ENOTDIR") return null;
        if (["EACCES", "EPERM", "EMFILE", "EIO"].includes(errnoOf(error) ?? "") || (isOther && looks >= LOOKS_MAX)) {
          this.#leftOut.add(path);
          return null;
        }
        if (!isOther) throw error;
      }
    }
  }

  #file(
    parent: number,
    name: string,
    path: string,
    stat: BigIntStats,
    old: Block | null,
    block: Bytes,
    expected: Entry | null,
    isLast: boolean,
  ): FileEntry | null {
    const known = old?.find(name)?.file ?? null;
    const linked = stat.nlink > 1n ? this.#links.known(stat) : null;
    const read =
      linked ??
      this.#files.unread(stat, known, expected?.kind === KIND.file ? expected : null) ??
      this.#files.read(at(parent, name), isLast);
    if (read === null) {
      this.#leftOut.add(path);
      return null;
    }
    if (read.torn) this.#torn.add(path);
    if (stat.nlink > 1n) this.#links.add(read.stat, path, read);
    this.#count(read.size);
    if (this.#options.newIndex !== null && !read.torn) {
      const { ino: inode, mtimeNs: mtime, ctimeNs: ctime } = read.stat;
      addFile(block, name, { inode, size: read.size, mtime, ctime, settled: read.settled, content: read.content });
    }
    const { mode, mtimeNs } = read.stat;
    const facts = { name, kind: KIND.file, mode: Number(mode & 0o777n), modified: mtimeNs / 1000n };
    return { ...facts, size: read.size, content: read.content, torn: read.torn };
  }

  #subdirectory(
    parent: number,
    name: string,
    path: string,
    depth: number,
    looked: BigIntStats,
    old: Block | null,
    block: Bytes,
    expected: Entry | null,
  ): Entry | null {
    if (looked.dev !== this.#device || depth >= DEPTH_MAX) {
      this.#leftOut.add(path);
      return null;
    }
    const descriptor = calls.open(at(parent, name), OPEN_LISTED);
    try {
      const stat = calls.fstat(descriptor);
      if (stat.dev !== this.#device) {
        this.#leftOut.add(path);
        return null;
      }
      const place = old?.find(name)?.block ?? null;
      const { oldIndex, newIndex } = this.#options;
      const known = place === null || oldIndex === null ? null : oldIndex.block(place);
      const written = expected?.kind === KIND.directory ? expected.hash : null;
      const { hash, block: own } = this.#directory(descriptor, path, depth + 1, known, written);
      if (newIndex !== null) addDirectory(block, name, newIndex.block(own.view()));
      const facts = { name, kind: KIND.directory, mode: Number(stat.mode & 0o777n), modified: stat.mtimeNs / 1000n };
      return { ...facts, hash };
    } finally {
      calls.close(descriptor);
    }
  }

  #count(bytes: number): void {
    this.#fileCount++;
    this.#sizeBytes += bytes;
    if (++this.#sinceProgress < PROGRESS_EVERY) return;
    this.#sinceProgress = 0;
    this.#options.onProgress(this.#fileCount, this.#sizeBytes);
  }
}

/** Latin-1 strings sort like their bytes. */
function byBytes(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Finds names in a stored directory; ask in their order. */
function entryReader(writer: PackWriter, hash: Buffer): (name: string) => Entry | null {
  const entries = treeEntries((wanted) => writer.read(wanted), hash);
  let next = entries.next();
  return (name) => {
    while (next.done !== true && next.value.name < name) next = entries.next();
    return next.done !== true && next.value.name === name ? next.value : null;
  };
}
