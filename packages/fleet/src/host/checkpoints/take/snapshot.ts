/**
 * Walks a workspace and commits what was found as the thread's new head.
 *
 *   walk into a draft pack → pack, durable → record, durable, renamed under the thread's lock: the commit point → index
 *
 * A crash before the commit point leaves garbage for the collector. After it, only the index is older than the record,
 * and is not used. The caller has the thread's turn, and the store SHARED.
 */

import { constants, mkdirSync, readFileSync, statfsSync } from "node:fs";
import { join } from "node:path";
import { type Generation, SandlotError } from "@sandlot/contract";
import { statIfThere, unlessMissing } from "../../../world/disk-trouble.ts";
import { draftName } from "../../../world/drafts.ts";
import type { Context, Owner, Store } from "../context.ts";
import type { ThreadPaths } from "../layout.ts";
import { type CheckpointRecord, draftRecord, recordName } from "../records.ts";
import { calls, closing, syncDirectory, writeAll } from "../store/calls.ts";
import type { PackWriter } from "../store/pack-writer.ts";
import { OBJECT } from "../store/packs.ts";
import { admission } from "./bounds.ts";
import { bytesOf } from "./path-list.ts";
import { IndexReader, IndexWriter } from "./stat-index.ts";
import { type Walked, walk } from "./walker.ts";

export interface SnapshotSpec {
  readonly id: string;
  readonly cause: CheckpointRecord["cause"];
  readonly label: string | null;
  readonly generation: Generation | null;
  readonly environment: string | null;
  readonly writers: "live" | "frozen" | "none";
  readonly verify: boolean;
  readonly requestId: string | null;
  /** Paths that are never kept. */
  readonly excluded: readonly string[];
  /** Writes a record also where nothing has changed. */
  readonly always?: boolean;
  readonly restoredFrom?: string;
  readonly restoredAs?: CheckpointRecord["restoredAs"];
  readonly written?: { readonly tree: Buffer; readonly since: bigint };
  /** Looks at what was found before it is committed, and throws where it is not what was wanted. */
  readonly accept?: (walked: Walked, read: (hash: Buffer) => Buffer) => void;
  /** Runs what makes the record visible. Absent: under the thread's lock. */
  readonly commit?: (publish: () => void) => Promise<void>;
}

export interface Snapshot {
  readonly record: CheckpointRecord;
  readonly isNew: boolean;
}

const { O_RDWR, O_CREAT } = constants;
const LEFT_OUT_MAX = 10_000;
/** At home: no mapping is left, and only the ticks of the kernel's clock are in doubt. */
const HOME_SLACK_NS = 50_000_000n;
/** ext, xfs, btrfs, tmpfs, overlay: they count the blocks of what was written but is not on the disk yet. */
const COUNT_BLOCKS = new Set([0xef53, 0x58465342, 0x9123683e, 0x01021994, 0x794c7630]);
const TMPFS = 0x01021994;

/** `null`: the thread was purged meanwhile. */
export async function snapshot(
  context: Context,
  { store, owner, thread, records, root }: SnapshotPlace,
  spec: SnapshotSpec,
): Promise<Snapshot | null> {
  mkdirSync(thread.directory, { recursive: true, mode: 0o700 });
  const identity = statIfThere(thread.directory)?.ino;
  const head = records.at(-1);
  const writer = store.writer(admission(context, store, owner, records));
  const draft = () => join(thread.directory, draftName(context.world));
  const isDue = (head?.seq ?? 0) % context.options.verifyEvery === context.options.verifyEvery - 1;
  const oldIndex = head === undefined ? null : IndexReader.open(thread.index, head.id);
  const newIndex = new IndexWriter(draft());
  let isIndexed = false;
  try {
    const walked = walkNow(context, store, owner, root, {
      ...{ writer, oldIndex, newIndex, writers: spec.writers, isAllRead: spec.verify || isDue },
      excluded: spec.excluded,
      ...(spec.written !== undefined && { written: spec.written }),
    });
    spec.accept?.(walked, (hash) => writer.read(hash));
    const [tree, links] = [walked.tree.toString("hex"), walked.links?.toString("hex") ?? null];
    const isSame = head !== undefined && head.tree === tree && head.links === links;
    const leftOutTable = tableOf(walked, writer);
    const addedBytes = writer.commit();
    const endIndex = (id: string) => {
      if (walked.rootBlock === null) return;
      isIndexed = true;
      newIndex.end(walked.rootBlock, id, thread.index);
    };
    if (isSame && spec.label === null && spec.always !== true) {
      endIndex(head.id);
      return { record: head, isNew: false };
    }
    // Without a sandbox, the one that had used the files last is that of the checkpoint before.
    const user = spec.generation === null ? head : spec;
    const record: CheckpointRecord = {
      ...{ version: 1, id: spec.id, seq: (head?.seq ?? 0) + 1, parent: head?.id ?? null, label: spec.label },
      ...{ cause: spec.cause, takenAt: context.world.wallMs(), generation: user?.generation ?? null },
      ...{ environment: user?.environment ?? null, tree, links, leftOutTable, addedBytes },
      excluded: [...spec.excluded],
      ...{ fileCount: walked.fileCount, sizeBytes: walked.sizeBytes },
      ...{ torn: walked.torn.sample(), leftOut: walked.leftOut.sample() },
      ...{ restoredFrom: spec.restoredFrom ?? null, restoredAs: spec.restoredAs ?? null, requestId: spec.requestId },
    };
    const recordDraft = draft();
    draftRecord(recordDraft, record);
    let isPurged = false;
    const publish = () => {
      // A purge has taken the directory away, and a later use of the thread may have made another.
      isPurged = statIfThere(thread.directory)?.ino !== identity;
      if (!isPurged) calls.rename(recordDraft, join(thread.directory, recordName(record)));
    };
    await (spec.commit?.(publish) ?? context.workspaces.restoring.locked(owner, publish));
    if (isPurged) return null;
    syncDirectory(thread.directory);
    endIndex(record.id);
    return { record, isNew: true };
  } catch (error) {
    // The directory went to the trash with all drafts in it.
    if (statIfThere(thread.directory)?.ino !== identity) return null;
    throw named(error, owner);
  } finally {
    oldIndex?.close();
    writer.discard();
    if (!isIndexed) unlessMissing(() => newIndex.discard());
  }
}

export interface SnapshotPlace {
  readonly store: Store;
  readonly owner: Owner;
  readonly thread: ThreadPaths;
  readonly records: readonly CheckpointRecord[];
  /** A descriptor of the workspace, open for reading. */
  readonly root: number;
}

export interface WalkSpec {
  readonly writer: PackWriter;
  readonly oldIndex: IndexReader | null;
  readonly newIndex: IndexWriter | null;
  readonly writers: "live" | "frozen" | "none";
  readonly isAllRead: boolean;
  readonly excluded: readonly string[];
  readonly written?: { readonly tree: Buffer; readonly since: bigint };
}

export function walkNow(context: Context, store: Store, owner: Owner, root: number, spec: WalkSpec): Walked {
  const { type } = statfsSync(`/proc/self/fd/${root}/.`);
  const { writer, oldIndex, newIndex, isAllRead, written } = spec;
  const { excluded } = spec;
  const { readBytesMax } = context.options;
  const startedAt = fileSystemTime(store.paths.clock);
  let files = 0;
  try {
    return walk(root, {
      ...{ writer, oldIndex, newIndex, isAllRead, readBytesMax, written },
      excluded: new Set(excluded.map(bytesOf)),
      settledBefore: settledBefore(spec.writers, startedAt, context.options.slackMs, type === TMPFS),
      holesAreKnown: COUNT_BLOCKS.has(type),
      onProgress: (count, bytes) => {
        files = count < 0 ? files : count;
        context.onProgress({ phase: "walking", files, bytes, totalFiles: null });
      },
    });
  } catch (error) {
    throw named(error, owner);
  }
}

/** Where an inner part knew no thread. */
function named(error: unknown, { thread }: Owner): unknown {
  if (!(error instanceof SandlotError) || error.code !== "checkpoint_refused") return error;
  return new SandlotError("checkpoint_refused", {
    ...(error.details as { bound: string; max: number; actual: number }),
    thread,
  });
}

/** The file system's own clock, in nanoseconds. */
export function fileSystemTime(path: string): bigint {
  return closing(calls.open(path, O_RDWR | O_CREAT, 0o600), (descriptor) => {
    writeAll(descriptor, Buffer.from("\n"));
    return calls.fstat(descriptor).mtimeNs;
  });
}

function settledBefore(
  writers: "live" | "frozen" | "none",
  startedAt: bigint,
  slackMs: number,
  isMemory: boolean,
): bigint | null {
  if (writers === "none") return startedAt - HOME_SLACK_NS;
  // Nothing writes its pages back, so a mapping is never protected again.
  if (isMemory) return null;
  return startedAt - BigInt(Math.ceil(Math.max(slackMs, 2 * writeBackMs()))) * 1_000_000n;
}

/** How long the kernel may leave a page dirty, and a mapping writable without a trace. */
function writeBackMs(): number {
  const hundredths = (name: string) => {
    const text = unlessMissing(() => readFileSync(`/proc/sys/vm/${name}`, "utf8"));
    const value = Number(text ?? "");
    return Number.isFinite(value) && value > 0 ? value : 0;
  };
  return (hundredths("dirty_expire_centisecs") + hundredths("dirty_writeback_centisecs")) * 10;
}

/** What a restore must leave alone: names that this checkpoint could not keep. */
function tableOf({ leftOut }: Walked, writer: PackWriter): string | null {
  if (leftOut.paths.length === 0) return null;
  return writer.put(OBJECT.table, Buffer.from(JSON.stringify(leftOut.paths.slice(0, LEFT_OUT_MAX)))).toString("hex");
}
