/** What a restore needs, looked at before anything is stopped; and whether stored checkpoints are whole. */

import { statfsSync } from "node:fs";
import { SandlotError, WORKSPACE_ROOT } from "@sandlot/contract";
import type { Budget, RestoreTarget } from "../../../backend/checkpoints.ts";
import { differences, hasSameContent, type PathFilter, type ReadObject } from "../compare/compare.ts";
import { filterOf } from "../compare/paths.ts";
import { type Context, type Owner, type Store, threadOf, withStore } from "../context.ts";
import { findRecord } from "../history.ts";
import { type CheckpointRecord, readRecords } from "../records.ts";
import { DamagedObject } from "../store/packs.ts";
import { shared } from "../store/store-locks.ts";
import { CHUNK_BYTES, type Entry, KIND, piecesOf } from "../store/tree-format.ts";
import { textOf } from "../take/path-list.ts";

const DAMAGED_MAX = 1_000;

export async function check(
  context: Context,
  owner: Owner,
  target: RestoreTarget,
  budget: Budget | null,
): Promise<void> {
  await withStore(context, owner, (store) =>
    shared(store.paths.lock, context.world, async () => {
      const records = readRecords(threadOf(context, owner).directory);
      const wanted = findRecord(records, owner.thread, target.checkpoint);
      checkNeeded(context, store, { head: records.at(-1), wanted, filter: filterOf(target.paths), budget });
    }),
  );
}

interface Needed {
  readonly head: CheckpointRecord | undefined;
  readonly wanted: CheckpointRecord;
  readonly filter: PathFilter;
  readonly budget: Budget | null;
}

export function checkNeeded(context: Context, store: Store, { head, wanted, filter, budget }: Needed): void {
  const reading = new CheckedReading(context, store);
  let [sizeBytes, fileCount] = filter.isAll
    ? [wanted.sizeBytes, wanted.fileCount]
    : [head?.sizeBytes ?? 0, head?.fileCount ?? 0];
  let newBytes = 0;
  let path = "";
  try {
    for (const table of [wanted.links, wanted.leftOutTable])
      if (table !== null) reading.object(Buffer.from(table, "hex"));
    const before = head === undefined ? null : Buffer.from(head.tree, "hex");
    // The root is read even where nothing differs: the present may, by the time of the restore.
    reading.object(Buffer.from(wanted.tree, "hex"));
    for (const one of differences((hash) => reading.object(hash), before, Buffer.from(wanted.tree, "hex"), filter)) {
      path = one.path;
      const [was, is] = [sizeOf(one.before), sizeOf(one.after)];
      if (!filter.isAll) {
        sizeBytes += is - was;
        fileCount += Number(one.after !== null) - Number(one.before !== null);
      }
      if (one.after === null || (one.before !== null && hasSameContent(one.before, one.after))) continue;
      newBytes += is;
      reading.content(one.after);
    }
  } catch (error) {
    if (!(error instanceof DamagedObject)) throw error;
    throw new SandlotError("checkpoint_damaged", { checkpoint: wanted.id, path: textOf(path), problem: error.message });
  }
  if (budget !== null && (sizeBytes > budget.maxBytes || fileCount > budget.maxFiles))
    throw new SandlotError("disk_limit_exceeded", { path: WORKSPACE_ROOT });
  const { bavail, bsize } = statfsSync(store.paths.root);
  if (bavail * bsize < newBytes + context.options.freeBytesMin)
    throw new SandlotError("disk_limit_exceeded", { path: WORKSPACE_ROOT });
}

function sizeOf(entry: Entry | null): number {
  return entry?.kind === KIND.file ? entry.size : 0;
}

/** Reads objects to see that they are whole. */
class CheckedReading {
  readonly #context: Context;
  readonly #store: Store;
  readonly #buffer = Buffer.allocUnsafeSlow(CHUNK_BYTES);
  #files = 0;
  #bytes = 0;

  constructor(context: Context, store: Store) {
    this.#context = context;
    this.#store = store;
  }

  readonly object: ReadObject = (hash) => this.#store.packs.read(hash);

  content(entry: Entry): void {
    if (entry.kind !== KIND.file) return;
    for (const { hash } of piecesOf(entry.content))
      if (hash !== null) this.#bytes += this.#store.packs.read(hash, this.#buffer).length;
    this.#files++;
    this.#context.onProgress({ phase: "reading", files: this.#files, bytes: this.#bytes, totalFiles: null });
  }
}

interface Verified {
  readonly checked: number;
  readonly damaged: readonly { readonly checkpoint: string; readonly path: string }[];
}

export function verify(context: Context, owner: Owner, checkpoint: string | null): Promise<Verified> {
  return withStore(context, owner, (store) =>
    shared(store.paths.lock, context.world, async () => {
      const records = readRecords(threadOf(context, owner).directory);
      const wanted = checkpoint === null ? records : [findRecord(records, owner.thread, checkpoint)];
      const damaged: { checkpoint: string; path: string }[] = [];
      for (const record of wanted) verifyOne(context, store, record, damaged);
      return { checked: wanted.length, damaged };
    }),
  );
}

function verifyOne(
  context: Context,
  store: Store,
  record: CheckpointRecord,
  damaged: { checkpoint: string; path: string }[],
): void {
  const reading = new CheckedReading(context, store);
  const note = (path: string, error: unknown) => {
    if (!(error instanceof DamagedObject)) throw error;
    if (damaged.length < DAMAGED_MAX) damaged.push({ checkpoint: record.id, path: textOf(path) });
  };
  let path = "";
  try {
    for (const table of [record.links, record.leftOutTable])
      if (table !== null) reading.object(Buffer.from(table, "hex"));
    for (const one of differences(reading.object, null, Buffer.from(record.tree, "hex"))) {
      path = one.path;
      if (one.after === null) continue;
      try {
        reading.content(one.after);
      } catch (error) {
        note(path, error);
      }
    }
  } catch (error) {
    // A directory that cannot be read hides what is below it, and after it.
    note(path, error);
  }
}
