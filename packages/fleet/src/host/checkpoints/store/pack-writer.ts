/**
 * Writes new objects into a draft pack. Objects that the user's store has are not written again.
 *
 * Invariants
 * - Nothing is visible before `commit`: content and index are on the disk before the pack gets its name.
 * - `discard` leaves nothing; after a crash a collection removes the draft.
 */

import { constants } from "node:fs";
import { join } from "node:path";
import { calls, syncDirectory, writeAll } from "./calls.ts";
import { DamagedObject, ENTRY_BYTES, hashOf, MAGIC, type ObjectKind, type Packs } from "./packs.ts";
import { HASH_BYTES } from "./tree-format.ts";

const BUFFER_BYTES = 1024 * 1024;
/** Offsets have 48 bits, counts 32. */
const OBJECTS_MAX = 2 ** 31;

export interface WriterOptions {
  readonly draft: string;
  /** 24 hexadecimal digits. */
  readonly name: string;
  /** Called with the bytes of the next object: throws where a bound would be passed. */
  readonly admit?: (bytes: number) => void;
}

export class PackWriter {
  readonly packs: Packs;
  readonly #options: WriterOptions;
  #descriptor: number | null = null;
  #written = 0;
  #buffer = Buffer.allocUnsafe(BUFFER_BYTES);
  #buffered = 0;
  #count = 0;
  #entries = Buffer.allocUnsafe(ENTRY_BYTES * 256);
  /** Open addressing: the number of an entry plus one. */
  #table = new Uint32Array(1024);

  constructor(packs: Packs, options: WriterOptions) {
    this.packs = packs;
    this.#options = options;
  }

  get addedBytes(): number {
    return this.#written + this.#buffered;
  }

  get count(): number {
    return this.#count;
  }

  /** Stores the bytes where they are new; returns their hash. */
  put(kind: ObjectKind, bytes: Buffer): Buffer {
    const hash = hashOf(bytes);
    this.putHashed(kind, hash, bytes);
    return hash;
  }

  putHashed(kind: ObjectKind, hash: Buffer, bytes: Buffer): void {
    if (this.#find(hash) >= 0 || this.packs.has(hash)) return;
    this.add(kind, hash, bytes);
  }

  /** Also where another pack has it. */
  add(kind: ObjectKind, hash: Buffer, bytes: Buffer): void {
    if (this.#find(hash) >= 0) return;
    this.#options.admit?.(bytes.length);
    if (this.#count >= OBJECTS_MAX) throw new Error("a pack has too many objects");
    this.#note(kind, hash, this.addedBytes, bytes.length);
    if (bytes.length > BUFFER_BYTES) {
      this.#flush();
      writeAll(this.#opened(), bytes);
      this.#written += bytes.length;
      return;
    }
    if (this.#buffered + bytes.length > BUFFER_BYTES) this.#flush();
    bytes.copy(this.#buffer, this.#buffered);
    this.#buffered += bytes.length;
  }

  has(hash: Buffer): boolean {
    return this.#find(hash) >= 0 || this.packs.has(hash);
  }

  /** From this draft or from the store. */
  read(hash: Buffer, into?: Buffer): Buffer {
    const entry = this.#find(hash);
    if (entry < 0) return this.packs.read(hash, into);
    this.#flush();
    const start = entry * ENTRY_BYTES + HASH_BYTES;
    const [offset, length] = [this.#entries.readUIntBE(start + 1, 6), this.#entries.readUInt32BE(start + 7)];
    const bytes = into !== undefined && into.length >= length ? into.subarray(0, length) : Buffer.allocUnsafe(length);
    for (let done = 0; done < length; ) {
      const count = calls.read(this.#opened(), bytes, done, length - done, offset + done);
      if (count === 0) throw new DamagedObject("an unfinished pack is too short");
      done += count;
    }
    if (!hashOf(bytes).equals(hash)) throw new DamagedObject("an object of an unfinished pack has changed on the disk");
    return bytes;
  }

  /** Makes everything durable. Returns what the store grew by. */
  commit(): number {
    if (this.#count === 0) {
      this.discard();
      return 0;
    }
    this.#flush();
    const descriptor = this.#opened();
    const order = this.#sorted();
    for (let first = 0; first < order.length; first += 4096) {
      const some = order.subarray(first, first + 4096);
      const bytes = Buffer.allocUnsafe(some.length * ENTRY_BYTES);
      for (const [at, entry] of some.entries())
        this.#entries.copy(bytes, at * ENTRY_BYTES, entry * ENTRY_BYTES, (entry + 1) * ENTRY_BYTES);
      writeAll(descriptor, bytes);
    }
    const footer = Buffer.alloc(MAGIC.length + 4);
    MAGIC.copy(footer);
    footer.writeUInt32BE(this.#count, MAGIC.length);
    writeAll(descriptor, footer);
    calls.fsync(descriptor);
    calls.rename(this.#options.draft, join(this.packs.directory, `${this.#options.name}.pack`));
    calls.close(descriptor);
    this.#descriptor = null;
    syncDirectory(this.packs.directory);
    this.packs.reload();
    return this.#written + this.#count * ENTRY_BYTES + footer.length;
  }

  discard(): void {
    if (this.#descriptor === null) return;
    calls.close(this.#descriptor);
    this.#descriptor = null;
    calls.unlink(this.#options.draft);
  }

  #opened(): number {
    const { O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
    this.#descriptor ??= calls.open(this.#options.draft, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    return this.#descriptor;
  }

  #flush(): void {
    if (this.#buffered === 0) return;
    writeAll(this.#opened(), this.#buffer.subarray(0, this.#buffered));
    this.#written += this.#buffered;
    this.#buffered = 0;
  }

  #note(kind: ObjectKind, hash: Buffer, offset: number, length: number): void {
    const start = this.#count * ENTRY_BYTES;
    if (start + ENTRY_BYTES > this.#entries.length) {
      const more = Buffer.allocUnsafe(this.#entries.length * 2);
      this.#entries.copy(more);
      this.#entries = more;
    }
    hash.copy(this.#entries, start);
    this.#entries.writeUInt8(kind, start + HASH_BYTES);
    this.#entries.writeUIntBE(offset, start + HASH_BYTES + 1, 6);
    this.#entries.writeUInt32BE(length, start + HASH_BYTES + 7);
    this.#count++;
    if (this.#count * 2 > this.#table.length) {
      this.#table = new Uint32Array(this.#table.length * 2);
      for (let entry = 0; entry < this.#count; entry++) this.#place(entry);
    } else this.#place(this.#count - 1);
  }

  #place(entry: number): void {
    const mask = this.#table.length - 1;
    let slot = this.#entries.readUInt32LE(entry * ENTRY_BYTES) & mask;
    while (this.#table[slot] !== 0) slot = (slot + 1) & mask;
    this.#table[slot] = entry + 1;
  }

  #find(hash: Buffer): number {
    const mask = this.#table.length - 1;
    for (let slot = hash.readUInt32LE(0) & mask; ; slot = (slot + 1) & mask) {
      const entry = (this.#table[slot] ?? 0) - 1;
      if (entry < 0) return -1;
      const start = entry * ENTRY_BYTES;
      if (this.#entries.compare(hash, 0, HASH_BYTES, start, start + HASH_BYTES) === 0) return entry;
    }
  }

  #sorted(): Uint32Array {
    const order = new Uint32Array(this.#count);
    for (let entry = 0; entry < order.length; entry++) order[entry] = entry;
    const keys = new Float64Array(this.#count);
    for (let entry = 0; entry < order.length; entry++) keys[entry] = this.#entries.readUIntBE(entry * ENTRY_BYTES, 6);
    const whole = (entry: number) => this.#entries.subarray(entry * ENTRY_BYTES, entry * ENTRY_BYTES + HASH_BYTES);
    return order.sort((a, b) => (keys[a] ?? 0) - (keys[b] ?? 0) || Buffer.compare(whole(a), whole(b)));
  }
}
