/**
 * What the records of a user need, as bits beside each pack's entries. Marking goes on where it was left: objects never
 * change, and a record's tree is marked once.
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { unlessMissing } from "../../../world/disk-trouble.ts";
import { isRecordName, parseRecord } from "../records.ts";
import type { Pack, Packs } from "../store/packs.ts";
import { entriesOf, KIND, partsOf, piecesOf } from "../store/tree-format.ts";

export class Marks {
  readonly #packs: Packs;
  readonly #threads: string;
  /** By the names of packs: they are opened again when there are new ones. */
  readonly #bits = new Map<string, Uint8Array>();
  readonly #seen = new Set<string>();
  /** The way down to where marking goes on: what each directory has left. */
  readonly #way: Iterator<Buffer>[] = [];

  constructor(packs: Packs, threads: string) {
    this.#packs = packs;
    this.#threads = threads;
  }

  /** Marks what all present records need. False: time is up; the next call goes on. Throws where an object is missing. */
  follow(isLate: () => boolean): boolean {
    for (;;) {
      for (let below = this.#way.at(-1); below !== undefined; below = this.#way.at(-1)) {
        const next = below.next();
        if (next.done === true) this.#way.pop();
        else this.#way.push(this.#tree(next.value));
        if (isLate()) return false;
      }
      if (!this.#addRecords()) return true;
    }
  }

  has(pack: Pack, entry: number): boolean {
    return this.#bits.get(pack.name)?.[entry] === 1;
  }

  liveBytes(pack: Pack): number {
    let sum = 0;
    for (let entry = 0; entry < pack.count; entry++) if (this.has(pack, entry)) sum += pack.lengthAt(entry);
    return sum;
  }

  isEmpty(pack: Pack): boolean {
    return this.#bits.get(pack.name)?.includes(1) !== true;
  }

  /** Whether the copy has everything of the pack that is needed. */
  isWithin(pack: Pack, copy: Pack | null): boolean {
    for (let entry = 0; entry < pack.count; entry++)
      if (this.has(pack, entry) && (copy === null || copy.find(pack.hashAt(entry)) < 0)) return false;
    return true;
  }

  /** False: there are no new ones. */
  #addRecords(): boolean {
    let isNew = false;
    for (const thread of readdirSync(this.#threads))
      for (const name of unlessMissing(() => readdirSync(join(this.#threads, thread))) ?? []) {
        const path = join(this.#threads, thread, name);
        if (!isRecordName(name) || this.#seen.has(path)) continue;
        const text = unlessMissing(() => readFileSync(path, "utf8"));
        this.#seen.add(path);
        // Removed since the directory was read.
        if (text === undefined) continue;
        // Its objects may be in a pack that came with it.
        if (!isNew) this.#packs.reload();
        isNew = true;
        const { tree, links, leftOutTable } = parseRecord(text, path);
        this.#way.push(this.#tree(Buffer.from(tree, "hex")));
        for (const table of [links, leftOutTable]) if (table !== null) this.#mark(Buffer.from(table, "hex"));
      }
    return isNew;
  }

  /** False when it was marked before. */
  #mark(hash: Buffer): boolean {
    const found = this.#packs.find(hash);
    if (found === null) throw new Error(`the object ${hash.toString("hex")} is missing`);
    const { pack, entry } = found;
    const bits = this.#bits.get(pack.name) ?? new Uint8Array(pack.count);
    this.#bits.set(pack.name, bits);
    if (bits[entry] === 1) return false;
    bits[entry] = 1;
    return true;
  }

  /** Marks a directory's object and its files, and names the objects below it. Objects are small: long ones have parts. */
  *#tree(hash: Buffer): Generator<Buffer> {
    if (!this.#mark(hash)) return;
    const object = this.#packs.read(hash);
    const parts = partsOf(object);
    if (parts !== null) {
      yield* parts;
      return;
    }
    for (const entry of entriesOf(object)) {
      if (entry.kind === KIND.directory) yield entry.hash;
      if (entry.kind !== KIND.file) continue;
      for (const { hash: chunk } of piecesOf(entry.content)) if (chunk !== null) this.#mark(chunk);
    }
  }
}
