/**
 * Brings a checkpoint back.
 *
 *   fence `restore.*` → the present as a safety checkpoint → differences, in place → walk again, at most three rounds →
 *   disk → the new head's record: the commit point → fence gone
 *
 * After a crash anywhere it is called again with the same request, and finds the fence, the safety checkpoint and the
 * head by it. Until then nothing else may use the workspace.
 */

import { spawnSync } from "node:child_process";
import { SandlotError } from "@sandlot/contract";
import type { WorkspaceSpot } from "../../../backend/backend.ts";
import type { Budget, Restored, RestoreTarget } from "../../../backend/checkpoints.ts";
import { noRoomInOurWords } from "../../../world/disk-trouble.ts";
import type { HeldHome } from "../../workspaces/restoring.ts";
import { differences, type PathFilter } from "../compare/compare.ts";
import { filterOf } from "../compare/paths.ts";
import { type Context, type Store, threadOf, withStore } from "../context.ts";
import { findRecord } from "../history.ts";
import type { ThreadPaths } from "../layout.ts";
import { asCheckpoint, type CheckpointRecord, idOfRequest, readRecords } from "../records.ts";
import { calls, ofDescriptor } from "../store/calls.ts";
import { inTurn, shared } from "../store/store-locks.ts";
import { bytesOf, textOf } from "../take/path-list.ts";
import { fileSystemTime, snapshot, walkNow } from "../take/snapshot.ts";
import { openWorkspace } from "../take/take.ts";
import type { Walked } from "../take/walker.ts";
import { Applier } from "./applier.ts";
import { Builder } from "./builder.ts";
import { checkNeeded } from "./check.ts";
import { Drafts } from "./drafts.ts";
import { apart, groupsIn, hasSameLinks, join, settleTouched } from "./links.ts";
import { Protected } from "./protected.ts";

const ROUNDS_MAX = 3;
const RETRY_AFTER_MS = 5_000;
/** More files than this are synchronized with the whole file system at once. */
const SYNC_EACH_MAX = 64;
const SYNC_TIMEOUT_MS = 300_000;
const SAY_UNCHANGED: ReadonlySet<string> = new Set([
  ...["checkpoint_not_found", "checkpoint_damaged", "disk_limit_exceeded"],
]);

export async function restore(
  context: Context,
  spot: WorkspaceSpot,
  target: RestoreTarget,
  budget: Budget | null,
): Promise<Restored> {
  return withStore(context, spot, (store) => {
    const { lock, turns } = store.paths;
    const work = () => shared(lock, context.world, () => new Restore(context, store, spot, target).run(budget));
    return inTurn(turns, spot.thread, context.world, work);
  });
}

/** What is there does not match yet. */
class Different extends Error {
  readonly path: string;
  readonly walked: Walked;

  constructor(path: string, walked: Walked) {
    super(`${path} differs`);
    this.path = path;
    this.walked = walked;
  }
}

interface Present {
  readonly tree: Buffer;
  readonly links: Buffer | null;
}

class Restore {
  readonly #context: Context;
  readonly #store: Store;
  readonly #spot: WorkspaceSpot;
  readonly #target: RestoreTarget;
  readonly #thread: ThreadPaths;
  #filter: PathFilter;
  /** What the target or the present never keeps: neither read nor touched. */
  #excluded: readonly string[] = [];

  constructor(context: Context, store: Store, spot: WorkspaceSpot, target: RestoreTarget) {
    this.#context = context;
    this.#store = store;
    this.#spot = spot;
    this.#target = target;
    this.#thread = threadOf(context, spot);
    this.#filter = filterOf(target.paths);
  }

  async run(budget: Budget | null): Promise<Restored> {
    const { restoring } = this.#context.workspaces;
    const { requestId } = this.#target;
    const [headId, safetyId] = ["restored", "safety"].map((what) => idOfRequest(this.#thread.key, what, requestId));
    const records = readRecords(this.#thread.directory);
    const done = records.find(({ id }) => id === headId);
    const taken = records.find(({ id }) => id === safetyId);
    if (done !== undefined) {
      const safety = taken ?? done;
      await restoring.end(this.#spot);
      return { checkpoint: asCheckpoint(done, records.at(-1)), safety: asCheckpoint(safety, records.at(-1)) };
    }
    const wanted = findRecord(records, this.#spot.thread, this.#target.checkpoint);
    const ways = [wanted, records.at(-1)].flatMap((record) => record?.excluded ?? this.#context.options.excluded);
    this.#excluded = [...new Set(ways)];
    this.#filter = filterOf(this.#target.paths, this.#excluded);
    // From the first change on, an error of these would say that nothing was changed.
    if (taken === undefined) {
      const head = records.at(-1);
      checkNeeded(this.#context, this.#store, { head, wanted, filter: this.#filter, budget });
    }
    const { user, thread } = this.#spot;
    const note = JSON.stringify({ owner: { user, thread }, target: { ...this.#target, checkpoint: wanted.id } });
    const held = await restoring.begin(this.#spot, wanted.id, note);
    let root: number | null = null;
    let isChanging = taken !== undefined;
    try {
      root = openWorkspace(ofDescriptor(held.descriptor));
      if (root === null) throw new SandlotError("thread_not_found", { thread: this.#spot.thread });
      const safety = taken ?? (await this.#safety(root, records, safetyId ?? ""));
      const isFresh = taken === undefined;
      isChanging = true;
      const since = fileSystemTime(this.#store.paths.clock);
      const head = await this.#rounds(root, held, wanted, { safety, isFresh, since, id: headId ?? "" });
      await restoring.end(this.#spot);
      await restoring.emptyTrash(this.#thread.key);
      return { checkpoint: asCheckpoint(head, head), safety: asCheckpoint(safety, head) };
    } catch (error) {
      if (isChanging) throw this.#unfinished(error, wanted.id);
      await restoring.end(this.#spot);
      throw error;
    } finally {
      if (root !== null) calls.close(root);
      calls.close(held.descriptor);
    }
  }

  /** Part of the files may be changed: the caller has to call again. */
  #unfinished(error: unknown, checkpoint: string): unknown {
    const told = noRoomInOurWords(error, this.#spot.thread);
    if (!(told instanceof SandlotError) || !SAY_UNCHANGED.has(told.code)) return told;
    const facts = { thread: this.#spot.thread, checkpoint, path: told.message, retryAfterMs: RETRY_AFTER_MS };
    return new SandlotError("restore_incomplete", facts, { cause: told });
  }

  async #safety(root: number, records: readonly CheckpointRecord[], id: string): Promise<CheckpointRecord> {
    const taken = await snapshot(
      this.#context,
      { ...this.#place(root), records },
      {
        ...{ id, cause: "before-restore", label: null, generation: this.#spot.generation },
        environment: records.at(-1)?.environment ?? null,
        ...{ writers: "none", verify: false, requestId: this.#target.requestId, always: true },
        excluded: this.#excluded,
      },
    );
    if (taken === null) throw new SandlotError("thread_not_found", { thread: this.#spot.thread });
    return taken.record;
  }

  async #rounds(
    root: number,
    held: HeldHome,
    wanted: CheckpointRecord,
    { safety, isFresh, since, id }: { safety: CheckpointRecord; isFresh: boolean; since: bigint; id: string },
  ): Promise<CheckpointRecord> {
    const tree = Buffer.from(wanted.tree, "hex");
    let present: Present = isFresh ? presentOf(safety) : this.#walked(root);
    for (let round = 1; ; round++) {
      await this.#apply(root, held, present, wanted);
      try {
        const records = readRecords(this.#thread.directory);
        const head = await snapshot(
          this.#context,
          { ...this.#place(root), records },
          {
            ...{
              id,
              cause: "restored",
              label: null,
              generation: this.#spot.generation,
              environment: safety.environment,
            },
            ...{ writers: "none", verify: false, requestId: this.#target.requestId, always: true },
            excluded: this.#excluded,
            ...{ restoredFrom: wanted.id, restoredAs: this.#target.as, written: { tree, since } },
            accept: (walked, read) => {
              const path = this.#firstDifference(read, walked, wanted);
              if (path !== null) throw new Different(path, walked);
            },
            commit: (publish) => this.#context.workspaces.restoring.step(this.#spot, wanted.id, publish),
          },
        );
        if (head === null) throw new SandlotError("thread_not_found", { thread: this.#spot.thread });
        return head.record;
      } catch (error) {
        if (!(error instanceof Different)) throw error;
        if (round >= ROUNDS_MAX) {
          const facts = { thread: this.#spot.thread, checkpoint: wanted.id, path: textOf(error.path) };
          throw new SandlotError("restore_incomplete", { ...facts, retryAfterMs: RETRY_AFTER_MS });
        }
        present = this.#walked(root);
      }
    }
  }

  /** What is there now, as tree objects that stay readable until the store is closed. */
  #walked(root: number): Present {
    const writer = this.#store.writer();
    const spec = { writer, oldIndex: null, newIndex: null, writers: "none", isAllRead: false } as const;
    const excluded = this.#excluded;
    const { tree, links } = walkNow(this.#context, this.#store, this.#spot, root, { ...spec, excluded });
    // Garbage when this process ends early; most of it is in the safety checkpoint already.
    writer.commit();
    return { tree, links };
  }

  async #apply(root: number, held: HeldHome, present: Present, wanted: CheckpointRecord): Promise<void> {
    const { restoring } = this.#context.workspaces;
    const read = (hash: Buffer, into?: Buffer) => this.#store.packs.read(hash, into);
    const target = Buffer.from(wanted.tree, "hex");
    const groups = groupsIn(read, wanted.links === null ? null : Buffer.from(wanted.links, "hex"));
    const guarded = this.#guarded(read, wanted);
    let changed = 0;
    const drafts = new Drafts(this.#context, root, held.draft, () => restoring.trashEntry(this.#thread.key));
    const builder = new Builder({
      ...{ read, account: held.account, checkpoint: wanted.id, syncEachMax: SYNC_EACH_MAX },
      onProgress: (files, bytes) =>
        this.#context.onProgress({ phase: "applying", files, bytes, totalFiles: wanted.fileCount }),
    });
    const applier = new Applier({
      ...{ read, builder, checkpoint: wanted.id, thread: this.#thread.key, drafts: drafts.descriptor },
      trashEntry: () => restoring.trashEntry(this.#thread.key),
      step: (work) => restoring.step(this.#spot, wanted.id, work),
      ...{ filter: this.#filter, guarded, apart: apart(groupsIn(read, present.links), groups, this.#filter) },
      onChanged: (descriptor) => {
        if (++changed <= SYNC_EACH_MAX) calls.fsync(descriptor);
      },
    });
    try {
      await applier.apply(root, present.tree, target);
      const joining = { applier, drafts: drafts.descriptor, filter: this.#filter, guarded };
      const touched = await join(root, groups, joining);
      settleTouched(root, touched, { read, tree: target, builder });
      if (changed > SYNC_EACH_MAX || builder.files > SYNC_EACH_MAX) syncFileSystem(held.draft);
    } finally {
      applier.close();
      drafts.close();
      await restoring.drop(this.#spot, drafts.path);
    }
  }

  #guarded(read: (hash: Buffer) => Buffer, { leftOutTable }: CheckpointRecord): Protected {
    const leftOut =
      leftOutTable === null ? [] : (JSON.parse(read(Buffer.from(leftOutTable, "hex")).toString()) as string[]);
    return new Protected([...leftOut, ...this.#excluded.map(bytesOf)]);
  }

  /** `null`: everything that was asked for is as the checkpoint has it. Times are kept where the file system can. */
  #firstDifference(read: (hash: Buffer) => Buffer, walked: Walked, wanted: CheckpointRecord): string | null {
    const guarded = this.#guarded(read, wanted);
    const left = new Protected(walked.leftOut.paths);
    for (const { path, after } of differences(read, walked.tree, Buffer.from(wanted.tree, "hex"), this.#filter)) {
      const stays = guarded.has(path) || (after === null && guarded.isAbove(path)) || left.has(path);
      if (!stays) return path;
    }
    const groups = groupsIn(read, wanted.links === null ? null : Buffer.from(wanted.links, "hex"));
    return hasSameLinks(groupsIn(read, walked.links), groups, this.#filter)
      ? null
      : (groups[0]?.[0] ?? "its hard links");
  }

  #place(root: number) {
    return { store: this.#store, owner: this.#spot, thread: this.#thread, root };
  }
}

function presentOf({ tree, links }: CheckpointRecord): Present {
  return { tree: Buffer.from(tree, "hex"), links: links === null ? null : Buffer.from(links, "hex") };
}

/** One call for thousands of files, each of which would wait for the journal. */
function syncFileSystem(path: string): void {
  spawnSync("/usr/bin/sync", ["-f", path], { timeout: SYNC_TIMEOUT_MS, stdio: "ignore" });
}
