/**
 * The stat cache of one thread: what each file looked like when it was read, and what it held. A file that looks the same
 * is not read again, unless it was not `settled`.
 *
 *   "SLINDEX2", blocks…, footer: f64 offset and u32 length of the root's block, 16 characters id of the checkpoint that
 *   holds these contents, 32 bytes SHA-256 of this footer's rest
 *   block: one directory's entries, sorted: u16 length, name, u8 kind, then
 *     file       u64 inode, f64 size, i64 mtime, i64 ctime, u8 settled, u32 length, content
 *     directory  f64 offset, u32 length of its block
 *
 * A block stands after the blocks of its subdirectories, so the file is written in one go while the walk is on. It is
 * renamed into place without waiting for the disk: one that is damaged or gone costs a reading of all files.
 */

import { constants } from "node:fs";
import { calls, writeAll } from "../store/calls.ts";
import { hashOf } from "../store/packs.ts";
import { Bytes, KIND } from "../store/tree-format.ts";

const MAGIC = Buffer.from("SLINDEX2");
const ID_BYTES = 16;
const FACTS_BYTES = 8 + 4 + ID_BYTES;
const FOOTER_BYTES = FACTS_BYTES + 32;
const BLOCK_MAX_BYTES = 512 * 1024 * 1024;

export interface BlockPlace {
  readonly offset: number;
  readonly length: number;
}

/** What is known of one name. */
export interface Known {
  readonly name: string;
  readonly file: KnownFile | null;
  readonly block: BlockPlace | null;
}

export interface KnownFile {
  readonly inode: bigint;
  readonly size: number;
  readonly mtime: bigint;
  readonly ctime: bigint;
  readonly settled: boolean;
  readonly content: Buffer;
}

export class IndexReader {
  readonly #descriptor: number;
  readonly root: BlockPlace;
  readonly #sizeBytes: number;

  private constructor(descriptor: number, root: BlockPlace, sizeBytes: number) {
    this.#descriptor = descriptor;
    this.root = root;
    this.#sizeBytes = sizeBytes;
  }

  /** `null` where there is none that is whole and belongs to this checkpoint: other contents may have been collected. */
  static open(path: string, checkpoint: string): IndexReader | null {
    if (calls.lstat(path) === undefined) return null;
    const descriptor = calls.open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
    const size = Number(calls.fstat(descriptor).size);
    const footer = Buffer.alloc(FOOTER_BYTES);
    const isWhole =
      size >= MAGIC.length + FOOTER_BYTES &&
      calls.read(descriptor, footer, 0, FOOTER_BYTES, size - FOOTER_BYTES) === FOOTER_BYTES &&
      hashOf(footer.subarray(0, FACTS_BYTES)).equals(footer.subarray(FACTS_BYTES)) &&
      footer.toString("latin1", 12, FACTS_BYTES) === checkpoint;
    if (isWhole)
      return new IndexReader(descriptor, { offset: footer.readDoubleBE(0), length: footer.readUInt32BE(8) }, size);
    calls.close(descriptor);
    return null;
  }

  /** The entries of a directory in their order. */
  block({ offset, length }: BlockPlace): Block {
    const bytes = Buffer.allocUnsafe(length);
    const isThere =
      length <= BLOCK_MAX_BYTES &&
      offset + length <= this.#sizeBytes &&
      calls.read(this.#descriptor, bytes, 0, length, offset) === length;
    return new Block(isThere ? bytes : Buffer.alloc(0));
  }

  close(): void {
    calls.close(this.#descriptor);
  }
}

/** Reads forward: ask for the names in their order. */
export class Block {
  readonly #bytes: Buffer;
  #at = 0;
  #next: Known | null;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
    this.#next = this.#read();
  }

  find(name: string): Known | null {
    while (this.#next !== null && this.#next.name < name) this.#next = this.#read();
    return this.#next?.name === name ? this.#next : null;
  }

  #read(): Known | null {
    const bytes = this.#bytes;
    if (this.#at >= bytes.length) return null;
    const nameLength = bytes.readUInt16BE(this.#at);
    let at = this.#at + 2;
    const name = bytes.toString("latin1", at, at + nameLength);
    at += nameLength;
    const kind = bytes[at++];
    if (kind === KIND.directory) {
      this.#at = at + 12;
      return { name, file: null, block: { offset: bytes.readDoubleBE(at), length: bytes.readUInt32BE(at + 8) } };
    }
    const length = bytes.readUInt32BE(at + 33);
    this.#at = at + 37 + length;
    const file = {
      inode: bytes.readBigUInt64BE(at),
      size: bytes.readDoubleBE(at + 8),
      mtime: bytes.readBigInt64BE(at + 16),
      ctime: bytes.readBigInt64BE(at + 24),
      settled: bytes[at + 32] === 1,
      content: bytes.subarray(at + 37, this.#at),
    };
    return { name, file, block: null };
  }
}

/** Writes a new index beside the old one. */
export class IndexWriter {
  readonly #draft: string;
  readonly #descriptor: number;
  readonly #pending = new Bytes();
  #written = 0;

  constructor(draft: string) {
    this.#draft = draft;
    const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
    this.#descriptor = calls.open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    this.#pending.add(MAGIC);
  }

  block(bytes: Buffer): BlockPlace {
    const place = { offset: this.#written + this.#pending.length, length: bytes.length };
    this.#pending.add(bytes);
    if (this.#pending.length > 1024 * 1024) this.#flush();
    return place;
  }

  /** Replaces the index. */
  end(root: BlockPlace, checkpoint: string, path: string): void {
    const footer = Buffer.alloc(FACTS_BYTES);
    footer.writeDoubleBE(root.offset, 0);
    footer.writeUInt32BE(root.length, 8);
    footer.write(checkpoint, 12, ID_BYTES, "latin1");
    this.#pending.add(footer);
    this.#pending.add(hashOf(footer));
    this.#flush();
    calls.close(this.#descriptor);
    calls.rename(this.#draft, path);
  }

  discard(): void {
    calls.close(this.#descriptor);
    calls.unlink(this.#draft);
  }

  #flush(): void {
    const bytes = this.#pending.view();
    writeAll(this.#descriptor, bytes);
    this.#written += bytes.length;
    this.#pending.clear();
  }
}

export function addFile(block: Bytes, name: string, file: KnownFile): void {
  const out = block.room(2 + name.length + 1 + 37 + file.content.length);
  let at = block.length;
  at = out.writeUInt16BE(name.length, at);
  at += out.write(name, at, "latin1");
  at = out.writeUInt8(KIND.file, at);
  at = out.writeBigUInt64BE(file.inode, at);
  at = out.writeDoubleBE(file.size, at);
  at = out.writeBigInt64BE(file.mtime, at);
  at = out.writeBigInt64BE(file.ctime, at);
  at = out.writeUInt8(file.settled ? 1 : 0, at);
  at = out.writeUInt32BE(file.content.length, at);
  at += file.content.copy(out, at);
  block.length = at;
}

export function addDirectory(block: Bytes, name: string, place: BlockPlace): void {
  const out = block.room(2 + name.length + 1 + 12);
  let at = block.length;
  at = out.writeUInt16BE(name.length, at);
  at += out.write(name, at, "latin1");
  at = out.writeUInt8(KIND.directory, at);
  at = out.writeDoubleBE(place.offset, at);
  at = out.writeUInt32BE(place.length, at);
  block.length = at;
}
