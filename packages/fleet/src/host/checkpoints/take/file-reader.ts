/** Reads regular files that may change meanwhile, and stores their chunks. */

import { type BigIntStats, constants } from "node:fs";
import { SandlotError } from "@sandlot/contract";
import { errnoOf } from "../../../world/disk-trouble.ts";
import { calls } from "../store/calls.ts";
import { OBJECT } from "../store/packs.ts";
import { CHUNK_BYTES, ContentBuilder, EMPTY, type FileEntry } from "../store/tree-format.ts";
import type { KnownFile } from "./stat-index.ts";
import type { WalkOptions } from "./walker.ts";

/** The name has another kind of file by now: look again. */
export class Changed extends Error {}

export interface ReadFile {
  /** Of the descriptor that was read. */
  readonly stat: BigIntStats;
  readonly size: number;
  readonly content: Buffer;
  readonly torn: boolean;
  readonly settled: boolean;
}

const READS_MAX = 3;
const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK, O_NOCTTY, O_NOATIME } = constants;
const OPEN = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
const ZEROS = Buffer.alloc(CHUNK_BYTES);
/** Smaller ones may have their bytes in the inode, and no blocks either. */
const HOLE_MIN_BYTES = 65_536n;
const SIZE_MAX = BigInt(Number.MAX_SAFE_INTEGER);

export class FileReader {
  readonly #options: WalkOptions;
  readonly #buffer = Buffer.allocUnsafeSlow(CHUNK_BYTES);
  /** Only the owner of a file may leave its access time alone. */
  #noAccessTime = O_NOATIME ?? 0;
  readBytes = 0;

  constructor(options: WalkOptions) {
    this.#options = options;
  }

  /** The content where it is known without reading. */
  unread(stat: BigIntStats, known: KnownFile | null, expected: FileEntry | null): ReadFile | null {
    const { isAllRead, written } = this.#options;
    if (isAllRead) return null;
    const isKnown =
      known?.settled === true &&
      known.ctime === stat.ctimeNs &&
      known.inode === stat.ino &&
      known.mtime === stat.mtimeNs &&
      known.size === Number(stat.size);
    if (isKnown) return { stat, size: known.size, content: known.content, torn: false, settled: true };
    const isWritten =
      expected !== null &&
      written !== undefined &&
      stat.ctimeNs >= written.since &&
      expected.size === Number(stat.size) &&
      expected.modified === stat.mtimeNs / 1000n;
    if (!isWritten) return null;
    const { size, content, torn } = expected;
    return { stat, size, content: Buffer.from(content), torn, settled: this.#isSettled(stat) };
  }

  /** `null`: it is left out. */
  read(path: string | Buffer, isLastLook: boolean): ReadFile | null {
    const descriptor = this.#open(path);
    try {
      for (let reads = 1; ; reads++) {
        const before = calls.fstat(descriptor);
        if (!before.isFile()) {
          if (isLastLook) return null;
          throw new Changed("it is no regular file any more");
        }
        if (before.size > SIZE_MAX || !this.#admits(before)) return null;
        const { content, size } = this.#content(descriptor, before);
        const after = calls.fstat(descriptor);
        const isSame =
          before.ctimeNs === after.ctimeNs &&
          before.mtimeNs === after.mtimeNs &&
          before.size === after.size &&
          size === Number(after.size);
        if (isSame) return { stat: after, size, content, torn: false, settled: this.#isSettled(after) };
        if (reads >= READS_MAX) return { stat: after, size, content, torn: true, settled: false };
      }
    } finally {
      calls.close(descriptor);
    }
  }

  #open(path: string | Buffer): number {
    try {
      return calls.open(path, OPEN | this.#noAccessTime);
    } catch (error) {
      if (errnoOf(error) !== "EPERM" || this.#noAccessTime === 0) throw error;
      this.#noAccessTime = 0;
      return calls.open(path, OPEN);
    }
  }

  #isSettled({ ctimeNs }: BigIntStats): boolean {
    const { settledBefore } = this.#options;
    return settledBefore !== null && ctimeNs < settledBefore;
  }

  /** Whether the bytes that are left to read are enough. A mostly empty file that is too big is left out. */
  #admits(stat: BigIntStats): boolean {
    if (this.#isHole(stat)) return true;
    const actual = this.readBytes + Number(stat.size);
    const max = this.#options.readBytesMax;
    if (actual <= max) return true;
    if (stat.blocks * 512n < stat.size / 2n) return false;
    throw new SandlotError("checkpoint_refused", { thread: "", bound: "bytes read", max, actual });
  }

  #isHole({ blocks, size }: BigIntStats): boolean {
    return this.#options.holesAreKnown && blocks === 0n && size > HOLE_MIN_BYTES;
  }

  /** Never more than the file had when it was opened: a growing one would not end. */
  #content(descriptor: number, stat: BigIntStats): { readonly content: Buffer; readonly size: number } {
    const size = Number(stat.size);
    if (size === 0) return { content: EMPTY, size };
    const builder = new ContentBuilder();
    if (this.#isHole(stat)) {
      builder.zeros(Math.ceil(size / CHUNK_BYTES));
      return { content: builder.end(), size };
    }
    let done = 0;
    while (done < size) {
      const length = this.#chunk(descriptor, Math.min(CHUNK_BYTES, size - done), done);
      if (length === 0) break;
      const chunk = this.#buffer.subarray(0, length);
      if (size > HOLE_MIN_BYTES && chunk[0] === 0 && chunk.equals(ZEROS.subarray(0, length))) builder.zeros(1);
      else builder.chunk(this.#options.writer.put(OBJECT.content, chunk));
      done += length;
      this.#options.onProgress(-1, done);
      if (length < Math.min(CHUNK_BYTES, size - done + length)) break;
    }
    this.readBytes += done;
    return { content: builder.end(), size: done };
  }

  #chunk(descriptor: number, length: number, position: number): number {
    let done = 0;
    while (done < length) {
      const count = calls.read(descriptor, this.#buffer, done, length - done, position + done);
      if (count === 0) break;
      done += count;
    }
    return done;
  }
}
