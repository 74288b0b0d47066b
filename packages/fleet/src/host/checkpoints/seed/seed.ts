/**
 * Fills the workspace of a thread that has none: built aside, moved home when complete, in the same step as its first
 * checkpoint becomes visible.
 */

import { constants } from "node:fs";
import { SandlotError, WORKSPACE_ROOT } from "@sandlot/contract";
import type { Budget, Seeded } from "../../../backend/checkpoints.ts";
import type { HeldHome } from "../../workspaces/restoring.ts";
import { ALL } from "../compare/compare.ts";
import { type Context, type Owner, type Store, threadOf, withStore } from "../context.ts";
import { findRecord } from "../history.ts";
import { asCheckpoint, readRecords } from "../records.ts";
import { Applier } from "../restore/applier.ts";
import { Builder, OPEN_INSIDE } from "../restore/builder.ts";
import { checkNeeded } from "../restore/check.ts";
import { Drafts } from "../restore/drafts.ts";
import { groupsIn, join, settleTouched } from "../restore/links.ts";
import { Protected } from "../restore/protected.ts";
import { at, calls } from "../store/calls.ts";
import { inTurn, shared } from "../store/store-locks.ts";
import { admission } from "../take/bounds.ts";
import { bytesOf, textOf } from "../take/path-list.ts";
import { snapshot, walkNow } from "../take/snapshot.ts";
import { openWorkspace, take } from "../take/take.ts";
import type { StoredSource } from "../worker/messages.ts";
import { unpack } from "./archive.ts";

interface Tree {
  readonly tree: Buffer;
  readonly links: Buffer | null;
  /** Latin-1. */
  readonly skipped: readonly string[];
  readonly excluded: readonly string[];
  /** For errors. */
  readonly checkpoint: string;
}

const SKIPPED_MAX = 1_000;
const WORKSPACE_NAME = "workspace";
const CAUSES = { checkpoint: "forked", thread: "forked", archive: "seeded", directory: "seeded" } as const;

export async function seed(context: Context, source: StoredSource, to: Owner, budget: Budget | null): Promise<Seeded> {
  if ("owner" in source && source.owner.user !== to.user)
    throw new SandlotError("thread_not_found", { thread: source.owner.thread });
  // Before the turn of the new thread: the source has a turn of its own.
  const checkpoint = source.kind === "thread" ? await taken(context, source.owner) : null;
  return withStore(context, to, (store) => {
    const { lock, turns } = store.paths;
    const fill: Fill = (filling) => fillFrom(context, store, source, checkpoint, filling);
    const work = () =>
      shared(lock, context.world, () => seedInTurn(context, store, to, budget, CAUSES[source.kind], fill));
    return inTurn(turns, to.thread, context.world, work);
  });
}

interface Filling {
  readonly root: number;
  readonly held: HeldHome;
  readonly to: Owner;
  readonly budget: Budget | null;
}
/** Returns what was not taken over, and what the new thread never keeps. */
type Fill = (filling: Filling) => Promise<Pick<Tree, "skipped" | "excluded">>;

async function seedInTurn(
  context: Context,
  store: Store,
  to: Owner,
  budget: Budget | null,
  cause: string,
  fill: Fill,
): Promise<Seeded> {
  const { restoring } = context.workspaces;
  const held = await restoring.beginSeed(to);
  let root: number | null = null;
  try {
    root = openWorkspace(held.path);
    if (root === null) throw new Error("the new workspace is gone");
    const { skipped, excluded } = await fill({ root, held, to, budget });
    const thread = threadOf(context, to);
    const place = { store, owner: to, thread, records: readRecords(thread.directory), root };
    const taken = await snapshot(context, place, {
      ...{ id: context.world.randomHex(8), cause, label: null, generation: null, environment: null },
      ...{ writers: "none", verify: false, requestId: null, always: true, excluded },
      accept: (walked) => checkBudget(walked, budget),
      commit: (publish) => restoring.endSeed(to, held.path, publish),
    });
    if (taken === null) throw new SandlotError("thread_not_found", { thread: to.thread });
    const { fileCount, sizeBytes } = taken.record;
    const texts = skipped.slice(0, SKIPPED_MAX).map(textOf);
    return { fileCount, sizeBytes, skipped: texts, checkpoint: asCheckpoint(taken.record, taken.record) };
  } finally {
    if (root !== null) calls.close(root);
    calls.close(held.descriptor);
    // Nothing is there any more when it was moved home.
    await restoring.drop(to, held.path);
  }
}

function checkBudget({ sizeBytes, fileCount }: { sizeBytes: number; fileCount: number }, budget: Budget | null): void {
  if (budget !== null && (sizeBytes > budget.maxBytes || fileCount > budget.maxFiles))
    throw new SandlotError("disk_limit_exceeded", { path: WORKSPACE_ROOT });
}

async function fillFrom(
  context: Context,
  store: Store,
  source: StoredSource,
  checkpoint: string | null,
  filling: Filling,
): ReturnType<Fill> {
  const { excluded } = context.options;
  switch (source.kind) {
    case "archive":
      return { skipped: await unpack(context, source.path, filling), excluded };
    case "directory": {
      const tree = walkedDirectory(context, store, filling.to, source.path);
      return { skipped: await buildInWorkspace(context, store, tree, filling), excluded };
    }
    case "thread":
    case "checkpoint": {
      const name = source.kind === "thread" ? checkpoint : source.checkpoint;
      if (name === null) return { skipped: [], excluded };
      const tree = stored(context, store, source.owner, name, filling.budget);
      return { skipped: await build(context, store, tree, filling), excluded: tree.excluded };
    }
  }
}

/** The present of the source, as a checkpoint of its own where it has changed. `null`: it has no files. */
async function taken(context: Context, owner: Owner): Promise<string | null> {
  const facts = { cause: "forked", generation: null, environment: null, writers: "live", leftOut: null } as const;
  const result = await take(context, owner, { ...facts, label: null, verify: false, requestId: null });
  return result.kind === "nothing" ? null : result.checkpoint.id;
}

function stored(context: Context, store: Store, owner: Owner, name: string, budget: Budget | null): Tree {
  const wanted = findRecord(readRecords(threadOf(context, owner).directory), owner.thread, name);
  checkNeeded(context, store, { head: undefined, wanted, filter: ALL, budget });
  const table = wanted.leftOutTable === null ? null : store.packs.read(Buffer.from(wanted.leftOutTable, "hex"));
  return {
    tree: Buffer.from(wanted.tree, "hex"),
    links: wanted.links === null ? null : Buffer.from(wanted.links, "hex"),
    skipped: table === null ? [] : (JSON.parse(table.toString()) as string[]),
    excluded: wanted.excluded,
    checkpoint: wanted.id,
  };
}

/** A directory of the host, walked as a workspace is. */
function walkedDirectory(context: Context, store: Store, owner: Owner, path: string): Tree {
  const root = calls.open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  const writer = store.writer(admission(context, store, owner, []));
  try {
    const { excluded } = context.options;
    const spec = { writer, oldIndex: null, newIndex: null, writers: "live", isAllRead: true, excluded } as const;
    const { tree, links, leftOut } = walkNow(context, store, owner, root, spec);
    writer.commit();
    return { tree, links, skipped: leftOut.paths, excluded, checkpoint: path };
  } finally {
    writer.discard();
    calls.close(root);
  }
}

/** A project's directory is the content of `workspace`, not of everything beside it. */
async function buildInWorkspace(
  context: Context,
  store: Store,
  source: Tree,
  filling: Filling,
): Promise<readonly string[]> {
  const root = calls.open(at(filling.root, WORKSPACE_NAME), OPEN_INSIDE);
  try {
    const skipped = await build(context, store, source, { ...filling, root });
    return skipped.map((path) => `${WORKSPACE_NAME}/${path}`);
  } finally {
    calls.close(root);
  }
}

async function build(
  context: Context,
  store: Store,
  source: Tree,
  { root, held, to }: Filling,
): Promise<readonly string[]> {
  const { restoring } = context.workspaces;
  const thread = threadOf(context, to).key;
  const read = (hash: Buffer, into?: Buffer) => store.packs.read(hash, into);
  const writer = store.writer();
  const spec = { writer, oldIndex: null, newIndex: null, writers: "none", isAllRead: false } as const;
  const { excluded } = source;
  const present = walkNow(context, store, to, root, { ...spec, excluded }).tree;
  writer.commit();
  const drafts = new Drafts(context, root, held.draft, () => restoring.trashEntry(thread));
  const builder = new Builder({
    ...{ read, account: held.account, checkpoint: source.checkpoint, syncEachMax: 0 },
    onProgress: (files, bytes) => context.onProgress({ phase: "applying", files, bytes, totalFiles: null }),
  });
  const guarded = new Protected(excluded.map(bytesOf));
  const applier = new Applier({
    ...{ read, builder, checkpoint: source.checkpoint, thread, drafts: drafts.descriptor, filter: ALL, guarded },
    trashEntry: () => restoring.trashEntry(thread),
    step: async (work) => work(),
    apart: new Protected([]),
    onChanged: () => {},
  });
  try {
    await applier.apply(root, present, source.tree);
    const touched = await join(root, groupsIn(read, source.links), {
      applier,
      drafts: drafts.descriptor,
      filter: ALL,
      guarded,
    });
    settleTouched(root, touched, { read, tree: source.tree, builder });
    return source.skipped;
  } finally {
    applier.close();
    drafts.close();
    await restoring.drop(to, drafts.path);
  }
}
