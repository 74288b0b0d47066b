/**
 * Checkpoints of workspaces on the disk of this machine. What walks, reads or writes many files is done by workers
 * (`worker/`); lists come from small records, which are read here without blocking.
 */

import { open, readdir, readFile, stat, unlink } from "node:fs/promises";
import { join } from "node:path";
import {
  type Checkpoint,
  type CheckpointChange,
  type CheckpointDiff,
  parseThreadId,
  parseUserId,
  SandlotError,
  type UserId,
} from "@sandlot/contract";
import { z } from "zod";
import type { WorkspaceSpot } from "../../backend/backend.ts";
import type {
  Budget,
  Checkpoints,
  LongCall,
  Restored,
  RestoreTarget,
  Seeded,
  SeedSource,
  Taken,
  TakeOptions,
  WorkspaceOwner,
} from "../../backend/checkpoints.ts";
import { isMissing } from "../../world/disk-trouble.ts";
import { draftName } from "../../world/drafts.ts";
import type { World } from "../../world/world.ts";
import type { DiskWorkspaces } from "../workspaces/disk-workspaces.ts";
import type { Account } from "../workspaces/tree.ts";
import { findRecord, resolveStep } from "./history.ts";
import { makeStore, storePathsOf, threadPathsOf } from "./layout.ts";
import { CHECKPOINT_DEFAULTS, type CheckpointOptions } from "./options.ts";
import { asCheckpoint, type CheckpointRecord, idOfRequest, isRecordName, parseRecord } from "./records.ts";
import { SharedTake } from "./shared-take.ts";
import type { StoredSource } from "./worker/messages.ts";
import { WorkerPool } from "./worker/worker-pool.ts";

export interface DiskCheckpointsOptions {
  /** The fleet's directory, as `DiskWorkspaces` has it. */
  readonly root: string;
  readonly account: Account;
  readonly isPassable?: boolean;
  /** Of the same directory. */
  readonly workspaces: DiskWorkspaces;
  readonly world: World;
  readonly options?: Partial<CheckpointOptions>;
}

const noteSchema = z.object({
  owner: z.object({ user: z.string(), thread: z.string() }),
  target: z.object({
    checkpoint: z.string(),
    paths: z.array(z.string()).optional(),
    requestId: z.string(),
    as: z.enum(["restore", "undo", "redo"]),
  }),
});

/** Records that are read at the same time. */
const READS = 16;
const CHANGES_MAX = 10_000;

export class DiskCheckpoints implements Checkpoints {
  readonly #root: string;
  readonly #workspaces: DiskWorkspaces;
  readonly #world: World;
  readonly #options: CheckpointOptions;
  readonly #pool: WorkerPool;
  /** Takes that run, and that wait for those, by what they ask for. */
  readonly #turns = new Map<string, { running: SharedTake | null; next: SharedTake | null }>();

  constructor({ root, account, isPassable = false, workspaces, world, options = {} }: DiskCheckpointsOptions) {
    this.#root = root;
    this.#workspaces = workspaces;
    this.#world = world;
    this.#options = { ...CHECKPOINT_DEFAULTS, ...options };
    this.#pool = new WorkerPool({ root, account, isPassable, options: this.#options }, world);
  }

  /** For tests. */
  get workerPids(): readonly number[] {
    return this.#pool.pids;
  }

  take(owner: WorkspaceOwner, options: TakeOptions): Promise<Taken> {
    const { signal, onProgress, label = null, leftOut = null, verify = false, requestId = null, ...rest } = options;
    const { cause, generation, environment, writers } = rest;
    const request = { cause, generation, environment, writers, label, leftOut, verify, requestId };
    const run = (ending: AbortSignal) => this.#pool.run("take", [owner, request], { signal: ending, onProgress });
    if (label !== null || requestId !== null) return run(signal);
    return this.#share(JSON.stringify([owner.user, owner.thread, request]), signal, run);
  }

  async list(owner: WorkspaceOwner): Promise<readonly Checkpoint[]> {
    const records = await this.#records(owner);
    const head = records.at(-1);
    return records.reverse().map((record) => asCheckpoint(record, head));
  }

  async newest(owner: WorkspaceOwner): Promise<Checkpoint | null> {
    const { directory } = threadPathsOf(this.#root, owner.user, owner.thread);
    const names = (await namesIn(directory)).filter(isRecordName).sort();
    for (const name of names.reverse()) {
      const record = await readRecord(join(directory, name));
      if (record !== null) return asCheckpoint(record, record);
    }
    return null;
  }

  async find(owner: WorkspaceOwner, name: string): Promise<Checkpoint> {
    const records = await this.#records(owner);
    return asCheckpoint(findRecord(records, owner.thread, name), records.at(-1));
  }

  async resolve(owner: WorkspaceOwner, direction: "undo" | "redo"): Promise<Checkpoint> {
    const records = await this.#records(owner);
    return asCheckpoint(resolveStep(records, owner.thread, direction), records.at(-1));
  }

  async diff(
    owner: WorkspaceOwner,
    { from, to }: { readonly from: string | null; readonly to: string | null },
    options: LongCall & { readonly texts: boolean; readonly maxChanges: number; readonly paths?: readonly string[] },
  ): Promise<CheckpointDiff> {
    const { texts, paths = null, signal, onProgress } = options;
    const changes: CheckpointChange[] = [];
    const range = { from, to, texts, maxChanges: Math.min(options.maxChanges, CHANGES_MAX), paths };
    const onChanges = (some: readonly CheckpointChange[]) => void changes.push(...some);
    const result = await this.#pool.run("diff", [owner, range], { signal, onProgress, onChanges });
    return { ...result, changes };
  }

  async check(owner: WorkspaceOwner, target: RestoreTarget, budget: Budget | null, call: LongCall): Promise<void> {
    await this.#pool.run("check", [owner, target, budget], call);
  }

  restore(spot: WorkspaceSpot, target: RestoreTarget, budget: Budget | null, call: LongCall): Promise<Restored> {
    return this.#pool.run("restore", [spot, target, budget], call);
  }

  async outcome(owner: WorkspaceOwner, requestId: string): Promise<Restored | null> {
    const records = await this.#records(owner);
    const { key } = threadPathsOf(this.#root, owner.user, owner.thread);
    const [done, safety] = ["restored", "safety"].map((what) =>
      records.find(({ id }) => id === idOfRequest(key, what, requestId)),
    );
    if (done === undefined) return null;
    const head = records.at(-1);
    return { checkpoint: asCheckpoint(done, head), safety: asCheckpoint(safety ?? done, head) };
  }

  async unfinished(): Promise<readonly { readonly owner: WorkspaceOwner; readonly target: RestoreTarget }[]> {
    const notes = await this.#workspaces.restoring.notes();
    return notes.map((note) => {
      const { owner, target } = noteSchema.parse(JSON.parse(note));
      const { paths, ...rest } = target;
      return {
        owner: { user: parseUserId(owner.user), thread: parseThreadId(owner.thread) },
        target: { ...rest, ...(paths !== undefined && { paths }) },
      };
    });
  }

  async seed(source: SeedSource, to: WorkspaceOwner, budget: Budget | null, call: LongCall): Promise<Seeded> {
    if (source.kind !== "archive") return this.#seed(source, to, budget, call);
    const path = await this.#spool(source.content, to.user, call.signal);
    try {
      return await this.#seed({ kind: "archive", path }, to, budget, call);
    } finally {
      await unlink(path).catch((error: unknown) => {
        // A collection may have removed it.
        if (!isMissing(error)) throw error;
      });
    }
  }

  async remove(owner: WorkspaceOwner, checkpoint: string): Promise<void> {
    await this.#pool.run("remove", [owner, checkpoint]);
  }

  verify(
    owner: WorkspaceOwner,
    checkpoint: string | null,
    call: LongCall,
  ): Promise<{
    readonly checked: number;
    readonly damaged: readonly { readonly checkpoint: string; readonly path: string }[];
  }> {
    return this.#pool.run("verify", [owner, checkpoint], call);
  }

  async *export(owner: WorkspaceOwner, checkpoint: string, call: LongCall): AsyncGenerator<Uint8Array> {
    const ending = new AbortController();
    const signal = AbortSignal.any([call.signal, ending.signal]);
    let given: { readonly piece: Uint8Array; readonly next: () => void } | null = null;
    let wake = () => {};
    const done = this.#pool
      .run("export", [owner, checkpoint], {
        signal,
        onProgress: call.onProgress,
        onPiece: (piece) =>
          new Promise((next) => {
            given = { piece, next };
            wake();
          }),
      })
      .then(
        () => ({ error: null }),
        (error: unknown) => ({ error }),
      );
    let end: { readonly error: unknown } | null = null;
    void done.then((outcome) => {
      end = outcome;
      wake();
    });
    try {
      for (;;) {
        const present = given as { readonly piece: Uint8Array; readonly next: () => void } | null;
        if (present !== null) {
          given = null;
          yield present.piece;
          present.next();
          continue;
        }
        const over = end as { readonly error: unknown } | null;
        if (over !== null) {
          if (over.error !== null) throw over.error;
          return;
        }
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    } finally {
      // A reader that stops early ends the worker; one that read everything finds it done.
      if (end === null) ending.abort();
    }
  }

  async collect(onProblem: (problem: string) => void, signal: AbortSignal): Promise<void> {
    await this.#pool.run("collect", [], { onProblem, signal });
  }

  async usage(user: UserId): Promise<{ readonly checkpoints: number; readonly storedBytes: number }> {
    const paths = storePathsOf(this.#root, user);
    let checkpoints = 0;
    for (const thread of await namesIn(paths.threads))
      checkpoints += (await namesIn(join(paths.threads, thread))).filter(isRecordName).length;
    let storedBytes = 0;
    for (const name of await namesIn(paths.packs)) {
      const stats = await stat(join(paths.packs, name)).catch(() => null);
      storedBytes += stats?.size ?? 0;
    }
    return { checkpoints, storedBytes };
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  #seed(source: StoredSource, to: WorkspaceOwner, budget: Budget | null, call: LongCall): Promise<Seeded> {
    return this.#pool.run("seed", [source, to, budget], call);
  }

  /** Oldest first. */
  async #records({ user, thread }: WorkspaceOwner): Promise<CheckpointRecord[]> {
    const { directory } = threadPathsOf(this.#root, user, thread);
    const names = (await namesIn(directory)).filter(isRecordName).sort();
    const records: CheckpointRecord[] = [];
    for (let first = 0; first < names.length; first += READS) {
      const some = names.slice(first, first + READS).map((name) => readRecord(join(directory, name)));
      records.push(...(await Promise.all(some)).filter((record) => record !== null));
    }
    return records;
  }

  /**
   * Callers that want the same share one walk, which ends with the last of them. Never one that has begun: it may have
   * passed what the caller has just written.
   */
  async #share(key: string, signal: AbortSignal, run: (ending: AbortSignal) => Promise<Taken>): Promise<Taken> {
    signal.throwIfAborted();
    const turn = this.#turns.get(key) ?? { running: null, next: null };
    this.#turns.set(key, turn);
    turn.next ??= new SharedTake(async (ending) => {
      await turn.running?.settled;
      ending.throwIfAborted();
      turn.running = turn.next;
      turn.next = null;
      return run(ending);
    });
    const mine = turn.next;
    try {
      return await mine.join(signal);
    } finally {
      if (turn.next === mine && mine.isOver) turn.next = null;
      if (turn.running === mine && mine.isOver) turn.running = null;
      if (turn.running === null && turn.next === null) this.#turns.delete(key);
    }
  }

  /** An archive of unknown length, in a file: the worker reads it as it needs it. */
  async #spool(content: AsyncIterable<Uint8Array>, user: UserId, signal: AbortSignal): Promise<string> {
    const paths = storePathsOf(this.#root, user);
    makeStore(paths);
    const path = join(paths.root, draftName(this.#world));
    const file = await open(path, "wx", 0o600);
    try {
      let sizeBytes = 0;
      const maxBytes = this.#options.archiveBytesMax;
      for await (const piece of content) {
        signal.throwIfAborted();
        sizeBytes += piece.length;
        if (sizeBytes > maxBytes) throw new SandlotError("payload_too_large", { what: "The archive", maxBytes });
        for (let done = 0; done < piece.length; ) done += (await file.write(piece, done)).bytesWritten;
      }
      return path;
    } catch (error) {
      await unlink(path);
      throw error;
    } finally {
      await file.close();
    }
  }
}

/** `null`: it was removed since its directory was read. */
async function readRecord(path: string): Promise<CheckpointRecord | null> {
  const text = await readFile(path, "utf8").catch((error: unknown) => {
    if (isMissing(error)) return null;
    throw error;
  });
  return text === null ? null : parseRecord(text, path);
}

async function namesIn(directory: string): Promise<readonly string[]> {
  return readdir(directory).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
}
