/**
 * Removes what no checkpoint of a user needs.
 *
 * Invariants
 * - One collector of a store at a time. It holds the store EXCLUSIVE only to remove something, for about 200 ms at most:
 *   takers and readers wait no longer. Where one is at work, what is left waits for the next collection.
 * - Marking and copying hold nothing: objects never change, and only a collector removes packs. What was recorded
 *   meanwhile is marked before a pack goes, under the lock.
 * - Marks are in memory only, so sweeping again after a crash is the same.
 * - What cannot be read stops the sweep: nothing is removed on doubt.
 * - A pack that is written anew is durable before the old one goes. After a purge every pack with unneeded bytes is,
 *   otherwise those with less than half needed.
 */

import { existsSync, readdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { unlessMissing } from "../../../world/disk-trouble.ts";
import { draftName, isDraft } from "../../../world/drafts.ts";
import { sleep } from "../../../world/waiting.ts";
import { RESTORE } from "../../workspaces/fence.ts";
import { MARK } from "../../workspaces/kept-checkpoints.ts";
import type { Context } from "../context.ts";
import { type StorePaths, storePaths } from "../layout.ts";
import { readRecords, recordName } from "../records.ts";
import { calls, syncDirectory } from "../store/calls.ts";
import { PackWriter } from "../store/pack-writer.ts";
import { type Pack, Packs, packBytes } from "../store/packs.ts";
import { exclusive } from "../store/store-locks.ts";
import { expired, type ThreadRecords } from "./expiry.ts";
import { Marks } from "./marks.ts";
import { reparent } from "./remove.ts";

const PATIENCE_MS = 200;
/** Of one hold of the store, and between two looks at what else this process has to do. */
const SLICE_MS = 100;
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
      // Another process may be collecting it.
      await exclusive(store.collector, context.world, 0, () => collectStore(context, store));
    } catch (error) {
      onProblem(`the checkpoints in ${store.root} cannot be collected: ${problemOf(error)}`);
    }
    context.onProgress({ phase: "reading", files: 0, bytes: 0, totalFiles: null });
  }
}

/** Whatever is not done when others use the store, a later collection does. */
async function collectStore(context: Context, paths: StorePaths): Promise<void> {
  const isExact = isDue(paths);
  const steps = new Steps(context, paths);
  const isBegun = await steps.run([
    () => unlessMissing(() => renameSync(join(paths.root, MARK.due), join(paths.root, MARK.collecting))),
    () => removeDrafts(paths.packs),
    ...readdirSync(paths.threads).map((thread) => () => removeDrafts(join(paths.threads, thread))),
  ]);
  if (!isBegun || !(await expire(context, paths, steps)) || !(await sweep(context, paths, steps, isExact))) return;
  unlessMissing(() => renameSync(join(paths.root, MARK.collecting), join(paths.root, MARK.quiet)));
}

function removeDrafts(directory: string): void {
  for (const name of unlessMissing(() => readdirSync(directory)) ?? [])
    if (isDraft(name)) unlessMissing(() => calls.unlink(join(directory, name)));
}

/** Removals, with the store EXCLUSIVE for a slice of time each. */
class Steps {
  readonly #context: Context;
  readonly #paths: StorePaths;

  constructor(context: Context, paths: StorePaths) {
    this.#context = context;
    this.#paths = paths;
  }

  /** `first` runs at the beginning of each slice. False: others used the store, or `first` said so. */
  async run(steps: readonly (() => void)[], first: (isLate: () => boolean) => boolean = () => true): Promise<boolean> {
    const { world } = this.#context;
    const left = [...steps];
    while (left.length > 0) {
      const isDone = await exclusive(this.#paths.lock, world, PATIENCE_MS, async () => {
        const isLate = this.slice();
        if (!first(isLate)) return false;
        do left.shift()?.();
        while (left.length > 0 && !isLate());
        return true;
      });
      if (isDone !== true) return false;
      // Takers that wait look every few milliseconds.
      if (left.length > 0) await this.pause(PATIENCE_MS / 4);
    }
    return true;
  }

  slice(): () => boolean {
    const { world } = this.#context;
    const until = world.monotonicMs() + SLICE_MS;
    return () => world.monotonicMs() >= until;
  }

  async pause(ms = 0): Promise<void> {
    this.#context.onProgress({ phase: "reading", files: 0, bytes: 0, totalFiles: null });
    await sleep(this.#context.world, ms);
  }
}

function isDue({ root }: StorePaths): boolean {
  return [MARK.due, MARK.collecting].some((name) => existsSync(join(root, name)));
}

function allRecords({ threads }: StorePaths): ThreadRecords[] {
  return readdirSync(threads).map((thread) => ({ thread, records: readRecords(join(threads, thread)) }));
}

function expire({ options, root, world }: Context, paths: StorePaths, steps: Steps): Promise<boolean> {
  const threads = allRecords(paths);
  const restored = (thread: string) => RESTORE.read(join(root, "homes", thread))?.checkpoint;
  const inUse = new Set(threads.flatMap(({ thread }) => restored(thread) ?? []));
  const going = expired(threads, world.wallMs(), options, packBytes(paths.packs), inUse);
  const removals = going.map(({ thread, record }) => () => {
    // A restore may have begun since.
    if (restored(thread) === record.id) return;
    const directory = join(paths.threads, thread);
    reparent(world, directory, record);
    unlessMissing(() => calls.unlink(join(directory, recordName(record))));
  });
  return steps.run(removals);
}

async function sweep(context: Context, paths: StorePaths, steps: Steps, isExact: boolean): Promise<boolean> {
  const packs = new Packs(paths.packs);
  const marks = new Marks(packs, paths.threads);
  try {
    while (!marks.follow(steps.slice())) await steps.pause();
    const { all } = packs;
    const old = all.filter((pack) => isWorthwhile(pack, marks, isExact, all.length));
    if (old.length === 0) return true;
    const names = old.map(({ name }) => name);
    const copy = await copied(context, paths, { packs, marks, old, steps });
    while (!marks.follow(steps.slice())) await steps.pause();
    let isWhole = true;
    const removals = names.map((name) => () => {
      const pack = packs.all.find((one) => one.name === name);
      if (pack === undefined) return;
      // A checkpoint that was taken meanwhile needs more of it than was copied.
      if (marks.isWithin(pack, packs.all.find((one) => one.name === copy) ?? null))
        calls.unlink(join(paths.packs, name));
      else isWhole = false;
    });
    const areGone = await steps.run(removals, (isLate) => marks.follow(isLate));
    syncDirectory(paths.packs);
    return areGone && isWhole;
  } finally {
    packs.close();
  }
}

interface Copying {
  readonly packs: Packs;
  readonly marks: Marks;
  readonly old: readonly Pack[];
  readonly steps: Steps;
}

/** Writes what is needed of the old packs into a new one, and returns its name. */
async function copied(context: Context, paths: StorePaths, { packs, marks, old, steps }: Copying): Promise<string> {
  const name = context.world.randomHex(12);
  // Not through the packs themselves: what is copied is in them still.
  const writer = new PackWriter(packs, { draft: join(paths.packs, draftName(context.world)), name });
  try {
    let isLate = steps.slice();
    for (const pack of old) {
      for (let entry = 0; entry < pack.count; entry++) {
        if (marks.has(pack, entry)) writer.add(pack.kindAt(entry) as 1, pack.hashAt(entry), pack.read(entry));
        if (!isLate()) continue;
        context.onProgress({ phase: "storing", files: 0, bytes: writer.addedBytes, totalFiles: null });
        await steps.pause();
        isLate = steps.slice();
      }
    }
    writer.commit();
  } finally {
    writer.discard();
  }
  return `${name}.pack`;
}

function isWorthwhile(pack: Pack, marks: Marks, isExact: boolean, packCount: number): boolean {
  const live = marks.liveBytes(pack);
  if (isExact && live < pack.objectBytes) return true;
  if (live < pack.objectBytes / 2 || marks.isEmpty(pack)) return true;
  return packCount > PACKS_MAX && pack.sizeBytes < SMALL_PACK_BYTES;
}

function problemOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}
