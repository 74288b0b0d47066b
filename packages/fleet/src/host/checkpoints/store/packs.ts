/**
 * The packs of one user: objects by their SHA-256.
 *
 *   objects…, index: entries sorted by hash (32 bytes, u8 kind, u48 offset, u32 length), footer: "SLPACK1\n", u32 count
 *
 * A pack has its name only when it is complete and on the disk. Every object is hashed again when it is read.
 */

import { hash as digest } from "node:crypto";
import { constants } from "node:fs";
import { join } from "node:path";
import { calls } from "./calls.ts";
import { HASH_BYTES } from "./tree-format.ts";

export const OBJECT = { content: 1, tree: 2, table: 3 } as const;
export type ObjectKind = (typeof OBJECT)[keyof typeof OBJECT];

export const ENTRY_BYTES = HASH_BYTES + 1 + 6 + 4;
export const MAGIC = Buffer.from("SLPACK1\n");
const FOOTER_BYTES = MAGIC.length + 4;
const PACK_NAME = /^[0-9a-f]{24}\.pack$/;

export class DamagedObject extends Error {}

export function hashOf(bytes: Uint8Array): Buffer {
  return digest("sha256", bytes, "buffer");
}

/** One pack, open for reading. */
export class Pack {
  readonly name: string;
  readonly descriptor: number;
  readonly count: number;
  /** Without index and footer. */
  readonly objectBytes: number;
  readonly sizeBytes: number;
  readonly #index: Buffer;

  constructor(directory: string, name: string) {
    this.name = name;
    this.descriptor = calls.open(join(directory, name), constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      this.sizeBytes = Number(calls.fstat(this.descriptor).size);
      const footer = this.#bytes(Math.max(0, this.sizeBytes - FOOTER_BYTES), FOOTER_BYTES);
      this.count = footer.readUInt32BE(MAGIC.length);
      this.objectBytes = this.sizeBytes - FOOTER_BYTES - this.count * ENTRY_BYTES;
      if (!footer.subarray(0, MAGIC.length).equals(MAGIC) || this.objectBytes < 0)
        throw new DamagedObject(`the pack ${name} is damaged`);
      this.#index = this.#bytes(this.objectBytes, this.count * ENTRY_BYTES);
    } catch (error) {
      calls.close(this.descriptor);
      throw error;
    }
  }

  /** The entry's number; -1 when it is not here. */
  find(hash: Buffer): number {
    const wanted = hash.readUIntBE(0, 6);
    for (let low = 0, high = this.count - 1; low <= high; ) {
      const middle = (low + high) >>> 1;
      const start = middle * ENTRY_BYTES;
      const there = this.#index.readUIntBE(start, 6);
      const order = there - wanted || this.#index.compare(hash, 0, HASH_BYTES, start, start + HASH_BYTES);
      if (order === 0) return middle;
      if (order < 0) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }

  hashAt(entry: number): Buffer {
    return this.#index.subarray(entry * ENTRY_BYTES, entry * ENTRY_BYTES + HASH_BYTES);
  }

  kindAt(entry: number): number {
    return this.#index.readUInt8(entry * ENTRY_BYTES + HASH_BYTES);
  }

  offsetAt(entry: number): number {
    return this.#index.readUIntBE(entry * ENTRY_BYTES + HASH_BYTES + 1, 6);
  }

  lengthAt(entry: number): number {
    return this.#index.readUInt32BE(entry * ENTRY_BYTES + HASH_BYTES + 7);
  }

  /** The object's bytes, checked. Into `into` where it fits. */
  read(entry: number, into?: Buffer): Buffer {
    const [offset, length] = [this.offsetAt(entry), this.lengthAt(entry)];
    if (offset + length > this.objectBytes) throw new DamagedObject(`the pack ${this.name} is damaged`);
    const bytes = this.#bytes(offset, length, into);
    if (!hashOf(bytes).equals(this.hashAt(entry)))
      throw new DamagedObject(`an object in the pack ${this.name} has changed on the disk`);
    return bytes;
  }

  close(): void {
    calls.close(this.descriptor);
  }

  #bytes(offset: number, length: number, into?: Buffer): Buffer {
    const bytes = into !== undefined && into.length >= length ? into.subarray(0, length) : Buffer.allocUnsafe(length);
    for (let done = 0; done < length; ) {
      const count = calls.read(this.descriptor, bytes, done, length - done, offset + done);
      if (count === 0) throw new DamagedObject(`the pack ${this.name} is too short`);
      done += count;
    }
    return bytes;
  }
}

/** All packs of a user. Opened when first asked for anything: an unchanged workspace needs none of them. */
export class Packs {
  readonly directory: string;
  #packs: Pack[] | null = null;

  constructor(directory: string) {
    this.directory = directory;
  }

  get all(): readonly Pack[] {
    this.#packs ??= calls
      .readdir(this.directory)
      .filter((name) => PACK_NAME.test(name))
      .sort()
      .map((name) => new Pack(this.directory, name));
    return this.#packs;
  }

  has(hash: Buffer): boolean {
    return this.find(hash) !== null;
  }

  find(hash: Buffer): { readonly pack: Pack; readonly entry: number } | null {
    for (const pack of this.all) {
      const entry = pack.find(hash);
      if (entry >= 0) return { pack, entry };
    }
    return null;
  }

  read(hash: Buffer, into?: Buffer): Buffer {
    const found = this.find(hash);
    if (found === null) throw new DamagedObject(`the object ${hash.toString("hex").slice(0, 12)} is missing`);
    return found.pack.read(found.entry, into);
  }

  /** After packs were added or removed. */
  reload(): void {
    this.close();
  }

  close(): void {
    for (const pack of this.#packs ?? []) pack.close();
    this.#packs = null;
  }
}

/** What all packs take on the disk, without opening them. */
export function packBytes(directory: string): number {
  let sum = 0;
  for (const name of calls.readdir(directory))
    if (PACK_NAME.test(name)) sum += Number(calls.lstat(join(directory, name))?.size ?? 0);
  return sum;
}
