/**
 * Removes what no checkpoint of a user needs.
 *
 * Invariants
 * - It holds the store EXCLUSIVE, and does nothing while a taker or reader is at work.
 * - Marks are in memory only, so sweeping again after a crash is the same.
 * - What cannot be read stops the sweep: nothing is removed on doubt.
 * - A pack that is written anew is durable before the old one goes. After a purge every pack with unneeded bytes is,
 *   otherwise those with less than half needed.
 */

import { existsSync, readdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { unlessMissing } from "../../../world/disk-trouble.ts";
import { draftName, isDraft } from "../../../world/drafts.ts";
import { RESTORE } from "../../workspaces/fence.ts";
import { MARK } from "../../workspaces/kept-checkpoints.ts";
import type { Context } from "../context.ts";
import { type StorePaths, storePaths } from "../layout.ts";
import { type CheckpointRecord, readRecords, recordName } from "../records.ts";
import { calls, syncDirectory } from "../store/calls.ts";
import { PackWriter } from "../store/pack-writer.ts";
import { type Pack, Packs, packBytes } from "../store/packs.ts";
import { exclusive } from "../store/store-locks.ts";
import { entriesOf, KIND, partsOf, piecesOf } from "../store/tree-format.ts";
import { expired, type ThreadRecords } from "./expiry.ts";
import { reparent } from "./remove.ts";

const PATIENCE_MS = 200;
/** Packs of one checkpoint each are put together when there are so many of them. */
const PACKS_MAX = 64;
const SMALL_PACK_BYTES = 8 * 1024 * 1024;

/** All users' stores; those of purged threads first. */
export async function collect(context: Context, onProblem: (problem: string) => void): Promise<void> {
  const stores = unlessMissing(() => readdirSync(join(context.root, "checkpoints"))) ?? [];
  const paths = stores.filter((name) => /^[0-9a-f]{32}$/.test(name)).map((name) => storePaths(context.root, name));
  const due = paths.filter(isDue);
  for (const store of [...due, ...paths.filter((one) => !due.includes(one))]) {
    try {
      await collectStore(context, store);
    } catch (error) {
      onProblem(`the checkpoints in ${store.root} cannot be collected: ${problemOf(error)}`);
    }
    context.onProgress({ phase: "reading", files: 0, bytes: 0, totalFiles: null });
  }
}

/** False while others use the store. */
async function collectStore(context: Context, paths: StorePaths): Promise<boolean> {
  const done = await exclusive(paths.lock, context.world, PATIENCE_MS, async () => {
    const isExact = isDue(paths);
    if (existsSync(join(paths.root, MARK.due)))
      renameSync(join(paths.root, MARK.due), join(paths.root, MARK.collecting));
    expire(context, paths);
    for (const name of readdirSync(paths.packs)) if (isDraft(name)) calls.unlink(join(paths.packs, name));
    for (const thread of readdirSync(paths.threads)) {
      const directory = join(paths.threads, thread);
      for (const name of unlessMissing(() => readdirSync(directory)) ?? [])
        if (isDraft(name)) unlessMissing(() => calls.unlink(join(directory, name)));
    }
    sweep(context, paths, isExact);
    unlessMissing(() => renameSync(join(paths.root, MARK.collecting), join(paths.root, MARK.quiet)));
    return true;
  });
  return done === true;
}

function isDue({ root }: StorePaths): boolean {
  return [MARK.due, MARK.collecting].some((name) => existsSync(join(root, name)));
}

function allRecords({ threads }: StorePaths): ThreadRecords[] {
  return readdirSync(threads).map((thread) => ({ thread, records: readRecords(join(threads, thread)) }));
}

function expire({ options, root, world }: Context, paths: StorePaths): void {
  const threads = allRecords(paths);
  const inUse = new Set(
    threads.flatMap(({ thread }) => {
      const fence = RESTORE.read(join(root, "homes", thread));
      return fence === null ? [] : [fence.checkpoint];
    }),
  );
  const going = expired(threads, world.wallMs(), options, packBytes(paths.packs), inUse);
  for (const { thread, record } of going) {
    const directory = join(paths.threads, thread);
    reparent(world, directory, record);
    unlessMissing(() => calls.unlink(join(directory, recordName(record))));
  }
}

function sweep(context: Context, paths: StorePaths, isExact: boolean): void {
  const packs = new Packs(paths.packs);
  try {
    const marks = new Marks(packs);
    for (const { records } of allRecords(paths)) for (const record of records) marks.record(record);
    const old = [...packs.all];
    const rewritten = old.filter((pack) => isWorthwhile(pack, marks, isExact, old.length));
    if (rewritten.length === 0) return;
    const gone = new Set(rewritten);
    // Not through the packs themselves: what is copied is in them still.
    const writer = new PackWriter(packs, {
      draft: join(paths.packs, draftName(context.world)),
      name: context.world.randomHex(12),
    });
    for (const pack of rewritten) {
      for (let entry = 0; entry < pack.count; entry++)
        if (marks.has(pack, entry)) writer.add(pack.kindAt(entry) as 1, pack.hashAt(entry), pack.read(entry));
      context.onProgress({ phase: "storing", files: 0, bytes: writer.addedBytes, totalFiles: null });
    }
    const names = [...gone].map(({ name }) => name);
    writer.commit();
    for (const name of names) calls.unlink(join(paths.packs, name));
    syncDirectory(paths.packs);
  } finally {
    packs.close();
  }
}

function isWorthwhile(pack: Pack, marks: Marks, isExact: boolean, packCount: number): boolean {
  const live = marks.liveBytes(pack);
  if (isExact && live < pack.objectBytes) return true;
  if (live < pack.objectBytes / 2 || marks.isEmpty(pack)) return true;
  return packCount > PACKS_MAX && pack.sizeBytes < SMALL_PACK_BYTES;
}

/** What is needed, as bits beside each pack's entries. */
class Marks {
  readonly #packs: Packs;
  readonly #bits = new Map<Pack, Uint8Array>();

  constructor(packs: Packs) {
    this.#packs = packs;
    for (const pack of packs.all) this.#bits.set(pack, new Uint8Array(pack.count));
  }

  record({ tree, links, leftOutTable }: CheckpointRecord): void {
    this.#tree(Buffer.from(tree, "hex"));
    for (const table of [links, leftOutTable]) if (table !== null) this.#mark(Buffer.from(table, "hex"));
  }

  has(pack: Pack, entry: number): boolean {
    return this.#bits.get(pack)?.[entry] === 1;
  }

  liveBytes(pack: Pack): number {
    let sum = 0;
    for (let entry = 0; entry < pack.count; entry++) if (this.has(pack, entry)) sum += pack.lengthAt(entry);
    return sum;
  }

  isEmpty(pack: Pack): boolean {
    return this.#bits.get(pack)?.includes(1) !== true;
  }

  /** False when it was marked before. */
  #mark(hash: Buffer): boolean {
    const found = this.#packs.find(hash);
    if (found === null) throw new Error(`the object ${hash.toString("hex")} is missing`);
    const bits = this.#bits.get(found.pack);
    if (bits === undefined || bits[found.entry] === 1) return false;
    bits[found.entry] = 1;
    return true;
  }

  #tree(hash: Buffer): void {
    if (!this.#mark(hash)) return;
    const object = this.#packs.read(hash);
    const parts = partsOf(object);
    if (parts !== null) {
      for (const part of parts) this.#tree(part);
      return;
    }
    for (const entry of entriesOf(object)) {
      if (entry.kind === KIND.directory) this.#tree(entry.hash);
      if (entry.kind !== KIND.file) continue;
      for (const { hash: chunk } of piecesOf(entry.content)) if (chunk !== null) this.#mark(chunk);
    }
  }
}

function problemOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}
