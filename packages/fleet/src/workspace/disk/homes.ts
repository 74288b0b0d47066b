/**
 * Homes: where threads' workspaces lie while no slot has them, and what is known about each thread.
 */

import {
  chmodSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import {
  type Generation,
  type SandboxId,
  SandlotError,
  type ThreadId,
  type ThreadKey,
  type UserId,
} from "@sandlot/contract";
import { z } from "zod";
import { OPEN_DIRECTORY } from "./descriptors.ts";
import { type DraftWorld, isAbandoned, isDraft } from "./drafts.ts";
import { FENCE } from "./fence.ts";
import type { Layout } from "./layout.ts";
import type { Trash } from "./trash.ts";
import { type Account, makeTree, repairTree } from "./tree.ts";
import { errnoOf, unlessMissing } from "./trouble.ts";

export interface Owner {
  readonly user: UserId;
  readonly thread: ThreadId;
}

/** A workspace's directory, with what it is known by wherever it is moved. */
export interface Identified {
  readonly path: string;
  readonly device: bigint;
  readonly inode: bigint;
}

const owner = z.object({ user: z.string(), thread: z.string() });
const NAMES = "names.json";

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
    return unlessMissing(() => lstatSync(this.#layout.userData(thread))) !== undefined;
  }

  isStale(thread: ThreadKey, generation: Generation): boolean {
    return this.generation(thread) > generation;
  }

  /** Refuses a generation that a later one has overtaken. */
  checkFence(thread: ThreadKey, { sandboxId, generation }: { sandboxId: SandboxId; generation: Generation }): void {
    if (!this.isStale(thread, generation)) return;
    throw new SandlotError("stale_generation", { sandboxId, generation, current: this.generation(thread) });
  }

  /** Writes down who uses the workspace now, and where. Before it is moved there. */
  fence(thread: ThreadKey, generation: Generation, at: string): void {
    FENCE.write(this.#layout.home(thread), { generation, at });
  }

  /** The newest generation that has used the workspace; 0 when none has. */
  generation(thread: ThreadKey): Generation {
    return FENCE.read(this.#layout.home(thread))?.generation ?? (0 as Generation);
  }

  /** The slot that the workspace was put into last; `null` when it was put home, or nowhere. */
  slotOf(thread: ThreadKey): string | null {
    const at = FENCE.read(this.#layout.home(thread))?.at;
    return at === undefined || at === "home" || at === "none" ? null : at;
  }

  /** Makes the place for a thread, and writes down whose it is. */
  open(thread: ThreadKey, whose: Owner | null): void {
    const home = this.#layout.home(thread);
    try {
      mkdirSync(home, 0o700);
      chmodSync(home, this.#passable);
    } catch (error) {
      if (errnoOf(error) !== "EEXIST") throw error;
    }
    if (whose === null || unlessMissing(() => lstatSync(join(home, NAMES))) !== undefined) return;
    const draft = join(home, `${NAMES}.draft`);
    writeFileSync(draft, JSON.stringify({ user: whose.user, thread: whose.thread }), { mode: 0o600 });
    renameSync(draft, join(home, NAMES));
  }

  /** An empty workspace that was made ahead; `undefined` when there is none. Nobody but the fleet has reached it. */
  spare(slot: string): Identified | undefined {
    return unlessMissing(() => this.#identity(this.#layout.spare(slot)));
  }

  /** Makes one, for a slot that was just made. */
  makeSpare(slot: string): void {
    makeTree(this.#layout.spare(slot), this.#account);
  }

  /** An empty workspace, still out of reach: the caller renames it to where it belongs. */
  draft(thread: ThreadKey): Identified {
    const path = this.#layout.draft(thread);
    // What a crash left here was never anywhere else, so nothing is in it.
    this.#trash.throwAway(path, thread);
    makeTree(path, this.#account);
    return this.#identity(path);
  }

  /** An empty workspace beside the one at home, under a name that says who makes it. */
  aside(thread: ThreadKey, name: string): string {
    const path = join(this.#layout.home(thread), name);
    makeTree(path, this.#account);
    return path;
  }

  /** Removes what killed processes have left beside workspaces. */
  sweepAside(thread: ThreadKey, world: DraftWorld): void {
    const home = this.#layout.home(thread);
    for (const name of unlessMissing(() => readdirSync(home)) ?? []) {
      const stats = isDraft(name) ? unlessMissing(() => lstatSync(join(home, name))) : undefined;
      if (stats !== undefined && isAbandoned(name, stats.mtimeMs, world))
        this.#trash.throwAway(join(home, name), thread);
    }
  }

  /** The workspace at home, made whole and ready to be moved; `undefined` when there is none. */
  ready(thread: ThreadKey): Identified | undefined {
    const path = this.#layout.userData(thread);
    if (!this.has(thread)) return undefined;
    repairTree(path, this.#account);
    return this.#identity(path);
  }

  /** Takes a thread's workspace, and its names, out of reach. */
  throwAway(thread: ThreadKey): void {
    this.#trash.throwAway(this.#layout.draft(thread), thread);
    this.#trash.throwAway(this.#layout.userData(thread), thread);
    unlessMissing(() => unlinkSync(join(this.#layout.home(thread), NAMES)));
  }

  /** Whose it is; `null` when nobody has written it down, or it was purged. */
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

  threads(): readonly ThreadKey[] {
    return readdirSync(this.#layout.homes).filter((name) => /^[0-9a-f]{32}$/.test(name)) as ThreadKey[];
  }

  /** Waits until what happened to a home would survive a power cut. */
  async sync(thread: ThreadKey): Promise<void> {
    const directory = await open(this.#layout.home(thread), "r");
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  }

  /** Whether a thread was purged, and nobody has come for it since `before` (Unix milliseconds). */
  isOver(thread: ThreadKey, before: number): boolean {
    const home = this.#layout.home(thread);
    const stats = unlessMissing(() => lstatSync(home));
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
