/** Homes: the threads' workspaces while no slot has them, and the records of each thread. */

import {
  chmodSync,
  closeSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { open, opendir } from "node:fs/promises";
import { join } from "node:path";
import {
  type Generation,
  HOME_DIRECTORY,
  type SandboxId,
  SandlotError,
  type ThreadId,
  type ThreadKey,
  type UserId,
  WORKSPACE_ROOT,
} from "@sandlot/contract";
import { z } from "zod";
import { errnoOf, statIfThere, unlessMissing } from "../../world/disk-trouble.ts";
import { type DraftWorld, isAbandoned, isDraft } from "../../world/drafts.ts";
import { fdPath, OPEN_DIRECTORY } from "../descriptors.ts";
import { FENCE, RESTORE, TENANT, type Use } from "./fence.ts";
import { GIVING, type Layout } from "./layout.ts";
import { fillPreallocated, preallocate } from "./preallocated.ts";
import type { Trash } from "./trash.ts";
import { type Account, makeTree, repairTree } from "./tree.ts";

export interface Owner {
  readonly user: UserId;
  readonly thread: ThreadId;
}

/** A workspace's directory, with the identity that survives moves. */
export interface Identified {
  readonly path: string;
  readonly device: bigint;
  readonly inode: bigint;
}

const owner = z.object({ user: z.string(), thread: z.string() });
const NAMES = "names.json";
const RESTORE_RETRY_MS = 1_000;
/** Some milliseconds' worth of small files. */
const NAMES_AT_ONCE = 32;

function ownerText({ user, thread }: Owner): string {
  return JSON.stringify({ user, thread });
}

/**
 * The names in a directory that may have very many. They are read in parts, and between two parts this process does other
 * work.
 */
export async function* namesOf(directory: string): AsyncGenerator<string> {
  for await (const { name } of await opendir(directory, { bufferSize: NAMES_AT_ONCE })) yield name;
}

export class Homes {
  readonly #layout: Layout;
  readonly #trash: Trash;
  readonly #account: Account;
  readonly #passable: number;

  constructor(layout: Layout, trash: Trash, account: Account, passable: number) {
    this.#layout = layout;
    this.#trash = trash;
    this.#account = account;
    this.#passable = passable;
  }

  has(thread: ThreadKey): boolean {
    return statIfThere(this.#layout.userData(thread)) !== undefined;
  }

  /** Whether another sandbox used the workspace in this generation, or any in a later. */
  isStale(thread: ThreadKey, { generation, sandboxId }: Use): boolean {
    const last = this.lastUse(thread);
    if (last.generation !== generation) return last.generation > generation;
    return last.sandboxId !== null && last.sandboxId !== sandboxId;
  }

  /** Refuses a generation that a later one has overtaken. */
  checkFence(thread: ThreadKey, { sandboxId, generation }: { sandboxId: SandboxId; generation: Generation }): void {
    if (!this.isStale(thread, { sandboxId, generation })) return;
    throw new SandlotError("stale_generation", { sandboxId, generation, current: this.lastUse(thread).generation });
  }

  /** Records who uses the workspace now, and where. Called before it is moved there. */
  fence(thread: ThreadKey, { generation, sandboxId }: Use, at: string): void {
    FENCE.write(this.#layout.home(thread), { generation, sandboxId, at });
  }

  /** Refuses every use of a workspace that an unfinished restore has between two states. */
  checkRestored(thread: ThreadKey): void {
    const fence = RESTORE.read(this.#layout.home(thread));
    if (fence === null) return;
    const name = this.owner(thread)?.thread ?? thread;
    const facts = { checkpoint: fence.checkpoint, path: WORKSPACE_ROOT, retryAfterMs: RESTORE_RETRY_MS };
    throw new SandlotError("restore_incomplete", { thread: name, ...facts });
  }

  /** Generation 0 when it was never used. */
  lastUse(thread: ThreadKey): Use {
    return FENCE.read(this.#layout.home(thread)) ?? { generation: 0 as Generation, sandboxId: null };
  }

  /** The slot that the workspace was put into last; `null` when it was put home, or nowhere. */
  slotOf(thread: ThreadKey): string | null {
    const at = FENCE.read(this.#layout.home(thread))?.at;
    return at === undefined || at === "home" || at === "none" ? null : at;
  }

  /** Creates a thread's home, and records its owner. Uses a home preallocated with a slot, if there is one. */
  open(thread: ThreadKey, whose: Owner | null, slot: string | null = null): void {
    const home = this.#layout.home(thread);
    if (whose !== null && slot !== null && this.#takeSpareHome(slot, home, whose)) return;
    try {
      mkdirSync(home, 0o700);
      chmodSync(home, this.#passable);
    } catch (error) {
      if (errnoOf(error) !== "EEXIST") throw error;
    }
    // A power cut leaves an empty one.
    if (whose === null || (statIfThere(join(home, NAMES))?.size ?? 0) > 0) return;
    const draft = join(home, `${NAMES}.draft`);
    writeFileSync(draft, ownerText(whose), { mode: 0o600 });
    renameSync(draft, join(home, NAMES));
  }

  /** Under the thread's lock no home is created between the check and the move. */
  #takeSpareHome(slot: string, home: string, whose: Owner): boolean {
    const spare = this.#layout.spareHome(slot);
    if (statIfThere(home) !== undefined || !fillPreallocated(join(spare, NAMES), ownerText(whose))) return false;
    renameSync(spare, home);
    return true;
  }

  /** A preallocated empty workspace; `undefined` when there is none. Only the fleet has accessed it. */
  spare(slot: string): Identified | undefined {
    return unlessMissing(() => this.#identity(this.#layout.spare(slot)));
  }

  /** Preallocates a workspace and a home for a slot that was just created. */
  makeSpare(slot: string, owner: Account): void {
    makeTree(this.#layout.spare(slot), owner);
    const home = this.#layout.spareHome(slot);
    mkdirSync(home, 0o700);
    preallocate(join(home, NAMES));
    FENCE.prepare(home);
    TENANT.prepare(this.#layout.slot(slot));
    chmodSync(home, this.#passable);
  }

  /** An empty workspace, still out of reach: the caller renames it to its place. */
  draft(thread: ThreadKey, owner: Account = this.#account): Identified {
    const path = this.#layout.draft(thread);
    // A crash left it here before it was ever used, so it is empty.
    this.#trash.throwAway(path, thread);
    makeTree(path, owner);
    return this.#identity(path);
  }

  /** An empty workspace beside the one at home, under a name that identifies its maker. */
  aside(thread: ThreadKey, name: string): string {
    const path = join(this.#layout.home(thread), name);
    makeTree(path, this.#account);
    return path;
  }

  /** Removes what killed processes left beside workspaces. */
  sweepAside(thread: ThreadKey, world: DraftWorld): void {
    const home = this.#layout.home(thread);
    for (const name of unlessMissing(() => readdirSync(home)) ?? []) {
      const stats = isDraft(name) ? statIfThere(join(home, name)) : undefined;
      if (stats !== undefined && isAbandoned(name, stats.mtimeMs, world))
        this.#trash.throwAway(join(home, name), thread);
    }
  }

  /** The workspace at home, repaired and ready to be moved; `undefined` when there is none. */
  ready(thread: ThreadKey): Identified | undefined {
    const path = this.#layout.userData(thread);
    if (!this.has(thread)) return undefined;
    repairTree(path, this.#account);
    return this.#identity(path);
  }

  /** Takes the content of the kept home out of reach. A workspace that is not here is left alone. */
  empty(thread: ThreadKey): void {
    // A sandbox may have closed its workspace to its own account.
    this.ready(thread);
    const descriptor = this.descriptor(thread);
    if (descriptor === undefined) return;
    try {
      this.#trash.throwAway(fdPath(descriptor, HOME_DIRECTORY), thread);
    } finally {
      closeSync(descriptor);
    }
    this.ready(thread);
  }

  /** Takes a thread's workspace, and its names, out of reach, including an unfinished change of owner. */
  throwAway(thread: ThreadKey): void {
    this.#trash.throwAway(this.#layout.draft(thread), thread);
    this.#trash.throwAway(this.#layout.userData(thread), thread);
    RESTORE.drop(this.#layout.home(thread));
    for (const name of [NAMES, GIVING]) unlessMissing(() => unlinkSync(join(this.#layout.home(thread), name)));
  }

  /** Its owner; `null` when none is recorded, or it was purged. */
  owner(thread: ThreadKey): Owner | null {
    const text = unlessMissing(() => readFileSync(join(this.#layout.home(thread), NAMES), "utf8"));
    if (text === undefined) return null;
    try {
      return owner.parse(JSON.parse(text)) as Owner;
    } catch {
      return null;
    }
  }

  /** A descriptor of the workspace at home. */
  descriptor(thread: ThreadKey): number | undefined {
    return unlessMissing(() => openSync(this.#layout.userData(thread), OPEN_DIRECTORY));
  }

  /** Every thread that has a home. */
  async *threads(): AsyncGenerator<ThreadKey> {
    for await (const name of namesOf(this.#layout.homes)) if (/^[0-9a-f]{32}$/.test(name)) yield name as ThreadKey;
  }

  /** Waits until the changes of a home would survive a power cut. */
  async sync(thread: ThreadKey): Promise<void> {
    const directory = await open(this.#layout.home(thread), "r");
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  }

  /** Whether a thread was purged, and was not used since `before` (Unix milliseconds). */
  isOver(thread: ThreadKey, before: number): boolean {
    const home = this.#layout.home(thread);
    const stats = statIfThere(home);
    return stats !== undefined && stats.mtimeMs < before && FENCE.read(home)?.at === "none" && !this.has(thread);
  }

  forget(thread: ThreadKey, before: number): void {
    if (!this.isOver(thread, before)) return;
    this.#trash.throwAway(this.#layout.home(thread), thread);
  }

  #identity(path: string): Identified {
    const { dev: device, ino: inode } = lstatSync(path, { bigint: true });
    return { path, device, inode };
  }
}
