/** A checkpoint's tree as a tar stream. Each piece waits until the last one was used. */

import { type Context, type Owner, threadOf, withStore } from "../context.ts";
import { findRecord } from "../history.ts";
import { readRecords } from "../records.ts";
import { damaged } from "../restore/builder.ts";
import { groupsIn } from "../restore/links.ts";
import { shared } from "../store/store-locks.ts";
import { CHUNK_BYTES, type Entry, KIND, piecesOf, treeEntries } from "../store/tree-format.ts";
import { join } from "../take/path-list.ts";
import type { Outlet } from "../worker/jobs.ts";
import { padding, TAR_END, tarHeader } from "./tar-writer.ts";

const PIECE_BYTES = 256 * 1024;

export function exportCheckpoint(context: Context, outlet: Outlet, owner: Owner, name: string): Promise<void> {
  return withStore(context, owner, (store) =>
    shared(store.paths.lock, context.world, async () => {
      const record = findRecord(readRecords(threadOf(context, owner).directory), owner.thread, name);
      const read = (hash: Buffer) => store.packs.read(hash);
      const groups = groupsIn(read, record.links === null ? null : Buffer.from(record.links, "hex"));
      const exporting = new Exporting(context, outlet, read, record.id, groups);
      await exporting.directory(Buffer.from(record.tree, "hex"), "");
      await exporting.end();
    }),
  );
}

class Exporting {
  readonly #context: Context;
  readonly #outlet: Outlet;
  readonly #read: (hash: Buffer) => Buffer;
  readonly #checkpoint: string;
  /** The first name of each file that has several. */
  readonly #firstOf = new Map<string, string>();
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #files = 0;
  #bytes = 0;

  constructor(
    context: Context,
    outlet: Outlet,
    read: (hash: Buffer) => Buffer,
    checkpoint: string,
    groups: readonly (readonly string[])[],
  ) {
    this.#context = context;
    this.#outlet = outlet;
    this.#read = read;
    this.#checkpoint = checkpoint;
    for (const [first = "", ...others] of groups) for (const path of others) this.#firstOf.set(path, first);
  }

  async directory(hash: Buffer, path: string): Promise<void> {
    try {
      for (const entry of treeEntries(this.#read, hash)) await this.#entry(entry, join(path, entry.name));
    } catch (error) {
      throw damaged(error, this.#checkpoint, path);
    }
  }

  async end(): Promise<void> {
    await this.#give(TAR_END);
    await this.#flush();
  }

  async #entry(entry: Entry, path: string): Promise<void> {
    const { mode, modified } = entry;
    const facts = { path, mode, modified };
    this.#files++;
    if (entry.kind === KIND.directory) {
      await this.#give(tarHeader({ ...facts, path: `${path}/`, kind: "directory", size: 0, target: null }));
      await this.directory(entry.hash, path);
    } else if (entry.kind === KIND.link)
      await this.#give(tarHeader({ ...facts, kind: "symlink", size: 0, target: entry.target }));
    else {
      const first = this.#firstOf.get(path);
      if (first !== undefined) await this.#give(tarHeader({ ...facts, kind: "link", size: 0, target: first }));
      else
        await this.#file(
          entry.content,
          entry.size,
          tarHeader({ ...facts, kind: "file", size: entry.size, target: null }),
        );
    }
  }

  async #file(content: Buffer, size: number, header: Buffer): Promise<void> {
    await this.#give(header);
    let left = size;
    for (const { hash, zeros } of piecesOf(content)) {
      if (hash !== null) {
        const bytes = this.#read(hash);
        left -= bytes.length;
        for (let at = 0; at < bytes.length; at += PIECE_BYTES) await this.#give(bytes.subarray(at, at + PIECE_BYTES));
        continue;
      }
      for (let hole = Math.min(left, zeros * CHUNK_BYTES); hole > 0; ) {
        const count = Math.min(hole, PIECE_BYTES);
        await this.#give(Buffer.alloc(count));
        hole -= count;
        left -= count;
      }
    }
    await this.#give(padding(size));
  }

  async #give(bytes: Buffer): Promise<void> {
    if (bytes.length === 0) return;
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    this.#bytes += bytes.length;
    if (this.#pendingBytes >= PIECE_BYTES) await this.#flush();
  }

  async #flush(): Promise<void> {
    if (this.#pendingBytes === 0) return;
    const piece = Buffer.concat(this.#pending);
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#context.onProgress({ phase: "reading", files: this.#files, bytes: this.#bytes, totalFiles: null });
    await this.#outlet.piece(piece);
  }
}
