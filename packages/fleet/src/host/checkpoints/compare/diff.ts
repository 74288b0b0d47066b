/**
 * The differences between two checkpoints, or a checkpoint and the present.
 *
 * The present is walked into a draft pack that is thrown away: what was read then does not change while it is compared.
 * No program is run, and nothing in the workspace (`.gitattributes`, pagers) has a say.
 */

import type { CheckpointChange } from "@sandlot/contract";
import { DIFF_TEXT_MAX_BYTES, unifiedDiff } from "../../../backend/unified-diff.ts";
import type { World } from "../../../world/world.ts";
import { type Context, type Owner, type Store, threadOf, withStore } from "../context.ts";
import { findRecord } from "../history.ts";
import { readRecords } from "../records.ts";
import { calls } from "../store/calls.ts";
import type { PackWriter } from "../store/pack-writer.ts";
import { inTurn, shared } from "../store/store-locks.ts";
import { type Entry, KIND, piecesOf } from "../store/tree-format.ts";
import { admission } from "../take/bounds.ts";
import { textOf } from "../take/path-list.ts";
import { walkNow } from "../take/snapshot.ts";
import { IndexReader } from "../take/stat-index.ts";
import { openWorkspace } from "../take/take.ts";
import type { Outlet } from "../worker/jobs.ts";
import type { DiffRange } from "../worker/messages.ts";
import { type Difference, differences, hasSameContent } from "./compare.ts";
import { filterOf } from "./paths.ts";

/** Of all text diffs of one answer: changes beyond have none. */
const TEXTS_MAX_BYTES = 4 * 1024 * 1024;
/** Of comparing texts; hostile ones take long each. */
const TEXTS_MAX_MS = 15_000;
const CHANGES_AT_ONCE = 50;
const BATCH_MAX_BYTES = 512 * 1024;

interface DiffResult {
  readonly from: string | null;
  readonly to: string | null;
  readonly counts: { readonly added: number; readonly changed: number; readonly removed: number };
  readonly truncated: boolean;
}

export async function diff(context: Context, outlet: Outlet, owner: Owner, range: DiffRange): Promise<DiffResult> {
  return withStore(context, owner, async (store) => {
    const writer = store.writer(admission(context, store, owner, []));
    try {
      const { lock, turns } = store.paths;
      const work = () => shared(lock, context.world, () => compare(context, outlet, { store, writer, owner, range }));
      // The present needs the index, which belongs to the turn.
      return await (range.to === null ? inTurn(turns, owner.thread, context.world, work) : work());
    } finally {
      writer.discard();
    }
  });
}

interface Comparison {
  readonly store: Store;
  readonly writer: PackWriter;
  readonly owner: Owner;
  readonly range: DiffRange;
}

async function compare(context: Context, outlet: Outlet, comparison: Comparison): Promise<DiffResult> {
  const { writer, owner, range } = comparison;
  const records = readRecords(threadOf(context, owner).directory);
  const named = (name: string | null) => (name === null ? null : findRecord(records, owner.thread, name));
  const [from, to] = [named(range.from), named(range.to)];
  const before = from === null ? null : Buffer.from(from.tree, "hex");
  // What either side never keeps is no change. The present is of the settings of the newest.
  const sides = [from, to ?? records.at(-1) ?? null].filter((side) => side !== null);
  const excluded = sides.length === 0 ? context.options.excluded : sides.flatMap((side) => side.excluded);
  const filter = filterOf(range.paths, excluded);
  const after = to === null ? await present(context, comparison, excluded) : Buffer.from(to.tree, "hex");
  const counts = { added: 0, changed: 0, removed: 0 };
  const texts = new Texts(writer, context.world);
  let batch: CheckpointChange[] = [];
  let batchBytes = 0;
  let told = 0;
  const read = (hash: Buffer) => writer.read(hash);
  for (const difference of differences(read, before, after, filter)) {
    counts[difference.before === null ? "added" : difference.after === null ? "removed" : "changed"]++;
    context.onProgress({ phase: "comparing", files: told, bytes: 0, totalFiles: null });
    if (told >= range.maxChanges) continue;
    told++;
    const text = range.texts ? texts.of(difference) : null;
    batch.push(changeOf(difference, text));
    batchBytes += text?.length ?? 0;
    if (batch.length < CHANGES_AT_ONCE && batchBytes < BATCH_MAX_BYTES) continue;
    outlet.changes(batch);
    batch = [];
    batchBytes = 0;
  }
  if (batch.length > 0) outlet.changes(batch);
  const truncated = counts.added + counts.changed + counts.removed > told;
  return { from: from?.id ?? null, to: to?.id ?? null, counts, truncated };
}

/** The tree of the present; `null` when the thread has no files. */
async function present(
  context: Context,
  { store, writer, owner }: Comparison,
  excluded: readonly string[],
): Promise<Buffer | null> {
  const thread = threadOf(context, owner);
  const handle = await context.workspaces.locate(owner);
  if (handle === null) return null;
  let root: number | null = null;
  const head = readRecords(thread.directory).at(-1);
  const oldIndex = head === undefined ? null : IndexReader.open(thread.index, head.id);
  try {
    root = openWorkspace(handle.path);
    if (root === null) return null;
    const spec = { writer, oldIndex, newIndex: null, writers: "live", isAllRead: false, excluded } as const;
    return walkNow(context, store, owner, root, spec).tree;
  } finally {
    if (root !== null) calls.close(root);
    oldIndex?.close();
    handle.close();
  }
}

class Texts {
  readonly #writer: PackWriter;
  readonly #world: World;
  readonly #startedAt: number;
  #bytes = 0;

  constructor(writer: PackWriter, world: World) {
    this.#writer = writer;
    this.#world = world;
    this.#startedAt = world.monotonicMs();
  }

  of({ path, before, after }: Difference): string | null {
    if (before !== null && after !== null && hasSameContent(before, after)) return null;
    if (this.#bytes >= TEXTS_MAX_BYTES || this.#world.monotonicMs() - this.#startedAt > TEXTS_MAX_MS) return null;
    const [a, b] = [this.#content(before), this.#content(after)];
    if (a === undefined || b === undefined) return null;
    const text = unifiedDiff(textOf(path), a, b);
    if (text === null || this.#bytes + text.length > TEXTS_MAX_BYTES) return null;
    this.#bytes += text.length;
    return text;
  }

  /** `null`: there is none. `undefined`: it is no file, or too big. */
  #content(entry: Entry | null): Buffer | null | undefined {
    if (entry === null) return null;
    if (entry.kind !== KIND.file || entry.size > DIFF_TEXT_MAX_BYTES) return undefined;
    const pieces = [...piecesOf(entry.content)].map(({ hash }) => (hash === null ? null : this.#writer.read(hash)));
    const whole = pieces.filter((piece) => piece !== null);
    return whole.length === pieces.length ? Buffer.concat(whole) : undefined;
  }
}

const KIND_NAMES = { [KIND.file]: "file", [KIND.directory]: "directory", [KIND.link]: "symlink" } as const;

function changeOf({ path, before, after }: Difference, diff: string | null): CheckpointChange {
  const facts = (entry: Entry | null) =>
    entry === null ? null : { sizeBytes: entry.kind === KIND.file ? entry.size : 0, mode: entry.mode };
  const newer = after ?? before;
  return {
    path: textOf(path),
    change: changeKind(before, after),
    kind: KIND_NAMES[newer?.kind ?? KIND.file],
    before: facts(before),
    after: facts(after),
    isTorn: [before, after].some((entry) => entry?.kind === KIND.file && entry.torn),
    diff,
  };
}

function changeKind(before: Entry | null, after: Entry | null): CheckpointChange["change"] {
  if (before === null) return "added";
  if (after === null) return "removed";
  if (before.kind !== after.kind) return "kind";
  return hasSameContent(before, after) ? "mode" : "changed";
}
