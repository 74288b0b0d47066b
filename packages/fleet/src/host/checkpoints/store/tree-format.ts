/**
 * The bytes of tree objects: one directory each, its entries sorted by the bytes of their names.
 *
 *   "T1", entries…                        a directory, or a part of one
 *   "S1", 32 bytes…                       a directory in several parts, by their hashes
 *   entry: u16 length, name, u8 kind, u8 flags, u16 mode, i64 modification time in microseconds, then
 *     file       f64 size, u32 length, content: 0x01 and a chunk's hash, or 0x00 and u48 the number of chunks of zeros
 *     directory  32 bytes, the hash of its object
 *     link       u16 length, target
 *
 * Chunks have 4 MiB, the last one the rest. Two directories with equal entries are one object. Hard links are no part of
 * a tree: the record names a table of them.
 */

export const HASH_BYTES = 32;
export const CHUNK_BYTES = 4 * 1024 * 1024;
/** A directory of more bytes is stored in several objects. */
const PART_BYTES = 1024 * 1024;

export const KIND = { file: 1, directory: 2, link: 3 } as const;

interface EntryFacts {
  /** Latin-1: one character per byte. */
  readonly name: string;
  /** The lower nine bits. */
  readonly mode: number;
  /** In microseconds: finer ones cannot be set. */
  readonly modified: bigint;
}

export interface FileEntry extends EntryFacts {
  readonly kind: typeof KIND.file;
  readonly size: number;
  readonly content: Buffer;
  /** Its content is a mixture: it changed each time it was read. */
  readonly torn: boolean;
}
export interface DirectoryEntry extends EntryFacts {
  readonly kind: typeof KIND.directory;
  readonly hash: Buffer;
}
export interface LinkEntry extends EntryFacts {
  readonly kind: typeof KIND.link;
  readonly target: string;
}
export type Entry = FileEntry | DirectoryEntry | LinkEntry;

export const EMPTY = Buffer.alloc(0);
const TREE = Buffer.from("T1");
const PARTS = Buffer.from("S1");
const FIXED = 2 + 1 + 1 + 2 + 8;

/** Bytes that grow. */
export class Bytes {
  #buffer = Buffer.allocUnsafe(4096);
  length = 0;

  /** Room for so many more; returns the buffer, to be written from `length` on. */
  room(count: number): Buffer {
    if (this.length + count > this.#buffer.length) {
      const next = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.length + count));
      this.#buffer.copy(next, 0, 0, this.length);
      this.#buffer = next;
    }
    return this.#buffer;
  }

  add(bytes: Uint8Array): void {
    this.room(bytes.length).set(bytes, this.length);
    this.length += bytes.length;
  }

  /** Valid until the next write. */
  view(): Buffer {
    return this.#buffer.subarray(0, this.length);
  }

  clear(): void {
    this.length = 0;
  }
}

/** Collects the entries of one directory, in their order, and stores the objects. */
export class TreeBuilder {
  readonly #store: (bytes: Buffer) => Buffer;
  readonly #bytes = new Bytes();
  readonly #parts: Buffer[] = [];

  constructor(store: (bytes: Buffer) => Buffer) {
    this.#store = store;
    this.#bytes.add(TREE);
  }

  add(entry: Entry): void {
    if (this.#bytes.length > PART_BYTES) this.#endPart();
    const { name, kind, mode, modified } = entry;
    const tail = tailOf(entry);
    const out = this.#bytes.room(FIXED + name.length + tail);
    let at = this.#bytes.length;
    at = out.writeUInt16BE(name.length, at);
    at += out.write(name, at, "latin1");
    at = out.writeUInt8(kind, at);
    at = out.writeUInt8(kind === KIND.file && entry.torn ? 1 : 0, at);
    at = out.writeUInt16BE(mode, at);
    at = out.writeBigInt64BE(modified, at);
    if (kind === KIND.file) {
      at = out.writeDoubleBE(entry.size, at);
      at = out.writeUInt32BE(entry.content.length, at);
      at += entry.content.copy(out, at);
    } else if (kind === KIND.directory) at += entry.hash.copy(out, at);
    else {
      at = out.writeUInt16BE(entry.target.length, at);
      at += out.write(entry.target, at, "latin1");
    }
    this.#bytes.length = at;
  }

  /** The hash of the whole directory. */
  end(): Buffer {
    if (this.#parts.length === 0) return this.#store(this.#bytes.view());
    this.#endPart();
    return this.#store(Buffer.concat([PARTS, ...this.#parts]));
  }

  #endPart(): void {
    this.#parts.push(this.#store(this.#bytes.view()));
    this.#bytes.clear();
    this.#bytes.add(TREE);
  }
}

function tailOf(entry: Entry): number {
  if (entry.kind === KIND.file) return 12 + entry.content.length;
  return entry.kind === KIND.directory ? HASH_BYTES : 2 + entry.target.length;
}

/** The parts of a directory; `null` when the object is the directory itself. Throws where it is neither. */
export function partsOf(object: Buffer): readonly Buffer[] | null {
  if (object.subarray(0, 2).equals(TREE)) return null;
  if (!object.subarray(0, 2).equals(PARTS) || (object.length - 2) % HASH_BYTES !== 0)
    throw new Error("it is no directory object");
  const parts: Buffer[] = [];
  for (let at = 2; at < object.length; at += HASH_BYTES) parts.push(object.subarray(at, at + HASH_BYTES));
  return parts;
}

/** The entries of a directory object without parts. They are views of its bytes. */
export function* entriesOf(object: Buffer): Generator<Entry> {
  for (let at = 2; at < object.length; ) {
    const nameLength = object.readUInt16BE(at);
    const name = object.toString("latin1", at + 2, at + 2 + nameLength);
    at += 2 + nameLength;
    const kind = object.readUInt8(at);
    const torn = object.readUInt8(at + 1) === 1;
    const mode = object.readUInt16BE(at + 2);
    const modified = object.readBigInt64BE(at + 4);
    at += 12;
    if (kind === KIND.file) {
      const size = object.readDoubleBE(at);
      const length = object.readUInt32BE(at + 8);
      const content = object.subarray(at + 12, at + 12 + length);
      at += 12 + length;
      yield { name, kind, mode, modified, size, content, torn };
    } else if (kind === KIND.directory) {
      yield { name, kind, mode, modified, hash: object.subarray(at, at + HASH_BYTES) };
      at += HASH_BYTES;
    } else if (kind === KIND.link) {
      const length = object.readUInt16BE(at);
      yield { name, kind, mode, modified, target: object.toString("latin1", at + 2, at + 2 + length) };
      at += 2 + length;
    } else throw new Error("a directory object has an entry of an unknown kind");
  }
}

/** The entries of a directory, in one object or in several. */
export function* treeEntries(read: (hash: Buffer) => Buffer, hash: Buffer): Generator<Entry> {
  const object = read(hash);
  const parts = partsOf(object);
  if (parts === null) yield* entriesOf(object);
  else for (const part of parts) yield* entriesOf(read(part));
}

/** A piece of a file: a stored chunk, or zeros. */
export type Piece = { readonly hash: Buffer; readonly zeros: 0 } | { readonly hash: null; readonly zeros: number };

export function* piecesOf(content: Buffer): Generator<Piece> {
  for (let at = 0; at < content.length; ) {
    if (content[at] === 1) {
      yield { hash: content.subarray(at + 1, at + 1 + HASH_BYTES), zeros: 0 };
      at += 1 + HASH_BYTES;
    } else {
      yield { hash: null, zeros: content.readUIntBE(at + 1, 6) };
      at += 7;
    }
  }
}

/** The content of a file, as it is put together. */
export class ContentBuilder {
  readonly #bytes: Buffer[] = [];
  #zeros = 0;

  chunk(hash: Buffer): void {
    this.#endZeros();
    this.#bytes.push(STORED, hash);
  }

  zeros(chunks: number): void {
    this.#zeros += chunks;
  }

  end(): Buffer {
    this.#endZeros();
    return this.#bytes.length === 0 ? EMPTY : Buffer.concat(this.#bytes);
  }

  #endZeros(): void {
    if (this.#zeros === 0) return;
    const run = Buffer.alloc(7);
    run.writeUIntBE(this.#zeros, 1, 6);
    this.#bytes.push(run);
    this.#zeros = 0;
  }
}

const STORED = Buffer.from([1]);
