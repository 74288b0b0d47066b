/**
 * Checkpoints in the memory of the engine, beside the workspaces.
 *
 * Invariants
 * - Every method is synchronous, so a checkpoint or a restore has happened or it has not.
 * - A thread's history goes with its purge. Only calls for the same user reach it.
 */

import { type Checkpoint, type CheckpointChange, type FleetId, type Generation, SandlotError } from "@sandlot/contract";
import type { WorkspaceSpot } from "../../../backend/backend.ts";
import { type HistoryEntry, resolveDirection } from "../../../backend/checkpoint-history.ts";
import type {
  Budget,
  Restored,
  RestoreTarget,
  Seeded,
  Taken,
  TakeOptions,
  WorkspaceOwner,
} from "../../../backend/checkpoints.ts";
import { unifiedDiff } from "../../../backend/unified-diff.ts";
import type { EngineWorkspaces } from "../engine-workspaces.ts";
import { makeWorkspace } from "../files/node.ts";
import {
  applySnapshot,
  directoryOf,
  entriesOf,
  type Kept,
  type KeptDirectory,
  keptAt,
  sizeOfKept,
  snapshotOf,
  withPaths,
} from "./snapshot.ts";

export type PlainTake = Pick<TakeOptions, "cause" | "label" | "generation" | "environment" | "requestId">;

interface Entry extends HistoryEntry {
  readonly checkpoint: Omit<Checkpoint, "isHead" | "parent">;
  readonly root: KeptDirectory;
}

interface History {
  /** In the order in which they were taken. */
  readonly entries: Map<string, Entry>;
  head: string | null;
  /** By the request that took them. */
  readonly taken: Map<string, string>;
  readonly restored: Map<string, { readonly checkpoint: string; readonly safety: string }>;
}

/** Beyond it the oldest goes, but none of the newest 3 and none with a label. */
const PER_THREAD_MAX = 200;
const NEWEST_KEPT = 3;
const PREFIX_MIN = 4;

export class EngineCheckpoints {
  readonly #workspaces: EngineWorkspaces;
  readonly #now: () => number;
  readonly #newId: () => string;
  readonly #histories = new Map<string, History>();

  constructor(workspaces: EngineWorkspaces, now: () => number, newId: () => string) {
    this.#workspaces = workspaces;
    this.#now = now;
    this.#newId = newId;
  }

  take(fleet: FleetId, owner: WorkspaceOwner, options: PlainTake): Taken {
    const history = this.#history(fleet, owner);
    const before = history.entries.get(history.taken.get(options.requestId ?? "") ?? "");
    if (before !== undefined) return { kind: "taken", checkpoint: shown(history, before) };
    const present = this.#workspaces.present(fleet, owner);
    if (present === undefined) return { kind: "nothing" };
    const head = headOf(history);
    const root = snapshotOf(present, head?.root);
    if (head !== undefined && head.root.hash === root.hash && options.label === undefined)
      return { kind: "unchanged", checkpoint: shown(history, head) };
    this.#makeRoom(history, owner);
    const entry = this.#add(history, root, { ...options, restoredFrom: null, as: null });
    if (options.requestId !== undefined) history.taken.set(options.requestId, entry.id);
    return { kind: "taken", checkpoint: shown(history, entry) };
  }

  list(fleet: FleetId, owner: WorkspaceOwner): readonly Checkpoint[] {
    const history = this.#history(fleet, owner);
    return [...history.entries.values()].map((entry) => shown(history, entry)).reverse();
  }

  find(fleet: FleetId, owner: WorkspaceOwner, name: string): Checkpoint {
    const history = this.#history(fleet, owner);
    return shown(history, findIn(history, owner, name));
  }

  resolve(fleet: FleetId, owner: WorkspaceOwner, direction: "undo" | "redo"): Checkpoint {
    const history = this.#history(fleet, owner);
    const target = resolveDirection(headOf(history), (id) => history.entries.get(id), direction);
    if (target === null) throw new SandlotError("nothing_to_undo", { thread: owner.thread, direction });
    return shown(history, target);
  }

  changes(
    fleet: FleetId,
    owner: WorkspaceOwner,
    range: { readonly from: string | null; readonly to: string | null },
    { texts, paths }: { readonly texts: boolean; readonly paths?: readonly string[] | undefined },
  ): readonly CheckpointChange[] {
    const history = this.#history(fleet, owner);
    const rootOf = (name: string | null, other: () => KeptDirectory) =>
      name === null ? other() : findIn(history, owner, name).root;
    const before = rootOf(range.from, () => NOTHING);
    const after = rootOf(range.to, () => this.#present(fleet, owner, headOf(history)?.root));
    const wanted = (path: string) =>
      paths === undefined || paths.some((one) => path === one || path.startsWith(`${one}/`));
    return changesBetween(before, after, texts).filter(({ path }) => wanted(path));
  }

  check(fleet: FleetId, owner: WorkspaceOwner, target: RestoreTarget, budget: Budget | null): void {
    const history = this.#history(fleet, owner);
    this.#targetOf(fleet, history, owner, target, budget);
  }

  restore(fleet: FleetId, spot: WorkspaceSpot, target: RestoreTarget, budget: Budget | null): Restored {
    const history = this.#history(fleet, spot);
    this.#workspaces.checkFence(fleet, spot);
    const done = this.outcome(fleet, spot, target.requestId);
    if (done !== null) return done;
    const { id: restoredFrom } = findIn(history, spot, target.checkpoint);
    const root = this.#targetOf(fleet, history, spot, target, budget);
    const present = this.#workspaces.home(fleet, spot);
    const { generation } = spot;
    const { environment = null } = headOf(history)?.checkpoint ?? {};
    const about = { generation, environment, restoredFrom: null, as: null } as const;
    const head = headOf(history);
    const now = snapshotOf(present, head?.root);
    const isKept = head !== undefined && head.root.hash === now.hash;
    const safety = isKept ? head : this.#add(history, now, { ...about, cause: "before-restore" });
    applySnapshot(root, present, this.#now());
    const entry = this.#add(history, root, { ...about, cause: "restored", restoredFrom, as: target.as });
    history.restored.set(target.requestId, { checkpoint: entry.id, safety: safety.id });
    return { checkpoint: shown(history, entry), safety: shown(history, safety) };
  }

  outcome(fleet: FleetId, owner: WorkspaceOwner, requestId: string): Restored | null {
    const history = this.#history(fleet, owner);
    const done = history.restored.get(requestId);
    const [entry, safety] = [history.entries.get(done?.checkpoint ?? ""), history.entries.get(done?.safety ?? "")];
    if (entry === undefined || safety === undefined) return null;
    return { checkpoint: shown(history, entry), safety: shown(history, safety) };
  }

  /** `from` is a tree of the same user, or one that was read from outside. */
  seed(
    fleet: FleetId,
    to: WorkspaceOwner,
    root: KeptDirectory,
    budget: Budget | null,
    cause: "forked" | "seeded",
  ): Seeded {
    if (this.#workspaces.present(fleet, to) !== undefined)
      throw new SandlotError("thread_exists", { thread: to.thread });
    const usage = usageOf(root);
    refuseBeyond(usage, budget);
    const workspace = makeWorkspace(this.#now());
    applySnapshot(root, workspace, this.#now());
    this.#workspaces.putHome(fleet, to, workspace);
    const history = newHistory();
    this.#histories.set(keyOf(fleet, to), history);
    const about = { generation: null, environment: null, restoredFrom: null, as: null, cause } as const;
    const entry = this.#add(history, snapshotOf(workspace), about);
    const { fileCount, sizeBytes } = usage;
    return { fileCount, sizeBytes, skipped: [], checkpoint: shown(history, entry) };
  }

  /** `null`: the present. A thread without files, also another user's, is `thread_not_found`. */
  tree(fleet: FleetId, owner: WorkspaceOwner, checkpoint: string | null): KeptDirectory {
    const history = this.#history(fleet, owner);
    if (checkpoint !== null) return findIn(history, owner, checkpoint).root;
    if (this.#workspaces.present(fleet, owner) === undefined)
      throw new SandlotError("thread_not_found", { thread: owner.thread });
    return this.#present(fleet, owner, headOf(history)?.root);
  }

  remove(fleet: FleetId, owner: WorkspaceOwner, name: string): void {
    const history = this.#history(fleet, owner);
    this.#drop(history, findIn(history, owner, name));
  }

  usage(fleet: FleetId, user: string): { readonly checkpoints: number; readonly storedBytes: number } {
    const own = [...this.#histories].filter(([key]) => key.startsWith(`${fleet}\n${user}\n`));
    const entries = own.flatMap(([, history]) => [...history.entries.values()]);
    return {
      checkpoints: entries.length,
      storedBytes: entries.reduce((sum, { checkpoint }) => sum + checkpoint.addedBytes, 0),
    };
  }

  /** With the thread's workspace. */
  purge(fleet: FleetId, owner: WorkspaceOwner): void {
    this.#histories.delete(keyOf(fleet, owner));
  }

  #present(fleet: FleetId, owner: WorkspaceOwner, earlier: KeptDirectory | undefined): KeptDirectory {
    const node = this.#workspaces.present(fleet, owner);
    return node === undefined ? NOTHING : snapshotOf(node, earlier);
  }

  #targetOf(
    fleet: FleetId,
    history: History,
    owner: WorkspaceOwner,
    target: RestoreTarget,
    budget: Budget | null,
  ): KeptDirectory {
    const whole = findIn(history, owner, target.checkpoint).root;
    const root =
      target.paths === undefined
        ? whole
        : withPaths(this.#present(fleet, owner, headOf(history)?.root), whole, target.paths.map(plainPath));
    refuseBeyond(usageOf(root), budget);
    return root;
  }

  #history(fleet: FleetId, owner: WorkspaceOwner): History {
    const key = keyOf(fleet, owner);
    const history = this.#histories.get(key) ?? newHistory();
    this.#histories.set(key, history);
    return history;
  }

  #add(
    history: History,
    root: KeptDirectory,
    about: PlainTake & Pick<HistoryEntry, "restoredFrom" | "as"> & { readonly generation: Generation | null },
  ): Entry {
    const { cause, label = null, restoredFrom, as } = about;
    const head = headOf(history);
    const { generation = null, environment = null } = about.generation === null ? (head?.checkpoint ?? {}) : about;
    const id = this.#newId();
    const addedBytes = addedBetween(head?.root ?? NOTHING, root);
    const none = { count: 0, paths: [] };
    const counted = { ...usageOf(root), addedBytes, torn: none, leftOut: none };
    const checkpoint = { id, label, cause, takenAt: this.#now(), generation, environment, restoredFrom, ...counted };
    const entry: Entry = {
      id,
      parent: head?.id ?? null,
      restoredFrom,
      as,
      tree: root.hash,
      checkpoint,
      root,
    };
    history.entries.set(id, entry);
    history.head = id;
    return entry;
  }

  #makeRoom(history: History, { thread }: WorkspaceOwner): void {
    const entries = [...history.entries.values()];
    if (entries.length < PER_THREAD_MAX) return;
    const oldest = entries.slice(0, -NEWEST_KEPT).find(({ checkpoint }) => checkpoint.label === null);
    if (oldest !== undefined) {
      this.#drop(history, oldest);
      return;
    }
    const bound = "the number of its checkpoints";
    throw new SandlotError("checkpoint_refused", { thread, bound, max: PER_THREAD_MAX, actual: entries.length + 1 });
  }

  #drop(history: History, { id, parent }: Entry): void {
    history.entries.delete(id);
    if (history.head === id) history.head = parent;
    for (const [childId, child] of history.entries)
      if (child.parent === id) history.entries.set(childId, { ...child, parent });
  }
}

const NOTHING: KeptDirectory = directoryOf(new Map(), 0o755, 0);

function keyOf(fleet: FleetId, { user, thread }: WorkspaceOwner): string {
  return `${fleet}\n${user}\n${thread}`;
}

function newHistory(): History {
  return { entries: new Map(), head: null, taken: new Map(), restored: new Map() };
}

function headOf(history: History): Entry | undefined {
  return history.head === null ? undefined : history.entries.get(history.head);
}

function shown(history: History, { checkpoint, parent, id }: Entry): Checkpoint {
  return { ...checkpoint, parent, isHead: history.head === id };
}

function findIn(history: History, { thread }: WorkspaceOwner, name: string): Entry {
  const entries = [...history.entries.values()];
  const byLabel = entries.findLast(({ checkpoint }) => checkpoint.label === name);
  const byPrefix = name.length < PREFIX_MIN ? [] : entries.filter(({ id }) => id.startsWith(name));
  const found = history.entries.get(name) ?? byLabel ?? (byPrefix.length === 1 ? byPrefix[0] : undefined);
  if (found === undefined) throw new SandlotError("checkpoint_not_found", { thread, checkpoint: name });
  return found;
}

function usageOf(root: KeptDirectory): { readonly fileCount: number; readonly sizeBytes: number } {
  let [fileCount, sizeBytes] = [0, 0];
  for (const [, kept] of entriesOf(root)) {
    if (kept.kind !== "directory") fileCount += 1;
    sizeBytes += sizeOfKept(kept);
  }
  return { fileCount, sizeBytes };
}

function refuseBeyond({ fileCount, sizeBytes }: ReturnType<typeof usageOf>, budget: Budget | null): void {
  if (budget === null || (fileCount <= budget.maxFiles && sizeBytes <= budget.maxBytes)) return;
  throw new SandlotError("disk_limit_exceeded", { path: "." });
}

/** Of a path that a caller gave, relative to the workspace. */
function plainPath(path: string): string {
  const parts = path.split("/").filter((part) => part !== "" && part !== ".");
  const problem = "it must be a path below the workspace, without `..`";
  if (parts.length === 0 || parts.includes(".."))
    throw new SandlotError("invalid_request", { field: "paths", problem });
  return parts.join("/");
}

function addedBetween(before: KeptDirectory, after: KeptDirectory): number {
  let bytes = 0;
  for (const [path, kept] of entriesOf(after))
    if (kept.kind === "file" && keptAt(before, path)?.hash !== kept.hash) bytes += kept.bytes.byteLength;
  return bytes;
}

function changesBetween(before: KeptDirectory, after: KeptDirectory, texts: boolean): readonly CheckpointChange[] {
  const paths = new Set([...entriesOf(before), ...entriesOf(after)].map(([path]) => path));
  return [...paths].sort().flatMap((path) => {
    const [old, now] = [keptAt(before, path), keptAt(after, path)];
    const change = changeBetween(old, now);
    const kind = (now ?? old)?.kind;
    if (change === null || kind === undefined) return [];
    const diff = texts && change !== "mode" ? unifiedDiff(path, textSide(old), textSide(now)) : null;
    const isText = (old ?? now)?.kind === "file" && (now ?? old)?.kind === "file";
    return [{ path, change, kind, before: side(old), after: side(now), isTorn: false, diff: isText ? diff : null }];
  });
}

function textSide(kept: Kept | undefined): Uint8Array | null {
  return kept?.kind === "file" ? kept.bytes : null;
}

function side(kept: Kept | undefined): { readonly sizeBytes: number; readonly mode: number } | null {
  return kept === undefined ? null : { sizeBytes: sizeOfKept(kept), mode: kept.mode };
}

/** `null`: equal, or only the times differ. */
function changeBetween(
  old: Kept | undefined,
  now: Kept | undefined,
): "added" | "removed" | "kind" | "changed" | "mode" | null {
  if (old === undefined || now === undefined)
    return now === undefined ? (old === undefined ? null : "removed") : "added";
  if (old.kind !== now.kind) return "kind";
  if (old.kind === "symlink" && now.kind === "symlink") return old.target === now.target ? null : "changed";
  if (old.kind === "file" && now.kind === "file" && Buffer.compare(old.bytes, now.bytes) !== 0) return "changed";
  return old.mode === now.mode ? null : "mode";
}
