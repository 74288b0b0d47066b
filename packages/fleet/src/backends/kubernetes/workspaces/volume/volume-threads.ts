/**
 * The directories of threads on a shared volume: their records, and workspaces at home.
 *
 * Invariants
 * - A thread's directory is made aside and renamed into place, and it is never empty. So a second rename onto it is
 *   refused by the server, whatever a client's cache says: a thread never gets a second, empty workspace.
 * - A workspace that is made in an existing directory gets the name of the thread's last use. All that make one at the
 *   same time choose the same name, and the server lets one of them have it.
 * - Every removal names exactly what was seen.
 */

import {
  chmod,
  mkdir,
  open,
  opendir,
  readFile,
  rename,
  rmdir,
  stat,
  truncate,
  unlink,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { type Generation, SandlotError, type ThreadKey } from "@sandlot/contract";
import { z } from "zod";
import type { Owner } from "../../../../host/workspaces/homes.ts";
import type { Quarantine } from "../../../../host/workspaces/quarantine.ts";
import type { Trash } from "../../../../host/workspaces/trash.ts";
import { makeTree } from "../../../../host/workspaces/tree.ts";
import { isMissing } from "../../../../world/disk-trouble.ts";
import { tryJson } from "../../../../world/try-json.ts";
import type { World } from "../../../../world/world.ts";
import { removeBare } from "./bare-tree.ts";
import { freshNames, ifThere, isTaken, record, statOrNull } from "./fresh-names.ts";
import {
  goneName,
  homeName,
  NO_SANDBOX,
  PASSABLE,
  parseRecord,
  type ThreadRecord,
  type VolumeLayout,
  type VolumeUse,
} from "./layout.ts";
import { type HomeRecord, ThreadRecords } from "./thread-records.ts";
import { moveTo } from "./volume-tree.ts";

export interface ThreadParts {
  readonly layout: VolumeLayout;
  readonly quarantine: Quarantine;
  readonly trash: Trash;
  readonly world: World;
}

const MADE = /^made\.[0-9a-f]{16}$/;
const NAMES_AT_ONCE = 32;
/** The workspace of a thread that no sandbox has used. */
const NEVER_USED = homeName({ generation: 0 as Generation, sandboxId: NO_SANDBOX });
const owner = z.object({ user: z.string(), thread: z.string() });

export class VolumeThreads {
  readonly #layout: VolumeLayout;
  readonly #quarantine: Quarantine;
  readonly #trash: Trash;
  readonly #world: World;

  constructor({ layout, quarantine, trash, world }: ThreadParts) {
    this.#layout = layout;
    this.#quarantine = quarantine;
    this.#trash = trash;
    this.#world = world;
  }

  /** The thread's records, from the server; `null` when it has no directory. */
  async read(thread: ThreadKey): Promise<ThreadRecords | null> {
    const names = await freshNames(this.#layout.thread(thread), this.#world.wallMs());
    if (names === null) return null;
    const records = names.map(parseRecord).filter((one) => one !== null);
    const homes: HomeRecord[] = [];
    const foreign: string[] = [];
    for (const one of records) {
      if (one.kind !== "home") continue;
      const stats = await statOrNull(this.#layout.home(thread, one.name));
      if (stats?.isDirectory() !== true) continue;
      if (stats.uid === BigInt(process.getuid?.() ?? 0)) homes.push({ ...one, kind: "home", inode: stats.ino });
      else foreign.push(one.name);
    }
    const others = records.filter(({ kind }) => kind !== "home");
    return new ThreadRecords({ homes, others, made: names.filter((name) => MADE.test(name)), foreign });
  }

  /** Makes a thread's directory, with a record or an empty workspace in it. False when there is one already. */
  async make(
    thread: ThreadKey,
    whose: Owner,
    first: { readonly at: string } | { readonly home: string },
  ): Promise<boolean> {
    return this.#make(thread, whose, async (draft) => {
      if ("at" in first) await record(join(draft, first.at));
      else makeTree(join(draft, first.home), null);
    });
  }

  /** Makes a workspace that was filled aside a thread's own. False when the thread has another. */
  async adopt(thread: ThreadKey, whose: Owner, tree: string): Promise<boolean> {
    const records = await this.read(thread);
    if (records === null) return this.#make(thread, whose, (draft) => rename(tree, join(draft, NEVER_USED)));
    if (records.home !== null || records.at !== null) return false;
    await this.own(thread, records, whose);
    try {
      await rename(tree, this.#layout.home(thread, records.nextHome));
      return true;
    } catch (error) {
      if (isTaken(error)) return false;
      throw error;
    }
  }

  /** Records who a thread's directory belongs to, where a purge has removed that. */
  async own(thread: ThreadKey, { made }: ThreadRecords, whose: Owner): Promise<void> {
    if (made.length > 0) return;
    const nonce = this.#world.randomHex(8);
    const draft = this.#layout.draft(nonce);
    await writeFile(draft, ownerText(whose), { mode: 0o600, flag: "wx" });
    const { ino } = await stat(draft, { bigint: true });
    await moveTo(draft, this.#layout.home(thread, `made.${nonce}`), ino);
  }

  /** An empty workspace, made aside: `at` is its path. */
  async draftTree(): Promise<{ readonly at: string; readonly inode: bigint }> {
    const at = this.#layout.draft(this.#world.randomHex(8));
    makeTree(at, null);
    return { at, inode: (await stat(at, { bigint: true })).ino };
  }

  /** Gives a thread that has a directory an empty workspace at home. False when there is one of that name. */
  async makeHome(thread: ThreadKey, name: string): Promise<boolean> {
    const { at, inode } = await this.draftTree();
    const target = this.#layout.home(thread, name);
    try {
      await rename(at, target);
      return true;
    } catch (error) {
      if (isMissing(error) && (await statOrNull(target))?.ino === inode) return true;
      this.#trash.throwAway(at, "draft");
      if (isTaken(error)) return false;
      throw error;
    }
  }

  record(thread: ThreadKey, name: string): Promise<void> {
    return record(this.#layout.home(thread, name));
  }

  /** The file that says whose it was becomes the record: a full volume has no room for another. */
  async recordGone(thread: ThreadKey, { made }: ThreadRecords, use: VolumeUse): Promise<void> {
    const target = this.#layout.home(thread, goneName(use));
    const [first] = made;
    const isRenamed = first !== undefined && (await ifThere(() => rename(this.#layout.home(thread, first), target)));
    // A purged thread keeps no name.
    if (isRenamed) await truncate(target);
    else await record(target);
  }

  forget(thread: ThreadKey, names: readonly string[]): Promise<unknown> {
    return Promise.all(names.map((name) => ifThere(() => unlink(this.#layout.home(thread, name)))));
  }

  /** Removes what this use of the workspace has overtaken. Leftover workspaces that hold anything go to quarantine. */
  async tidy(thread: ThreadKey, use: VolumeUse): Promise<void> {
    const records = await this.read(thread);
    if (records === null) return;
    const isOlder = ({ generation }: VolumeUse) => generation < use.generation;
    await this.forget(
      thread,
      [...records.ats, ...records.gones].filter(isOlder).map(({ name }) => name),
    );
    for (const { name } of records.homes.slice(0, -1).filter(isOlder))
      await this.setAside(thread, name, "a later generation has another workspace");
    for (const name of records.foreign) await removeBare(this.#layout.home(thread, name));
  }

  /** Moves a leftover workspace to quarantine; an empty one is removed. */
  async setAside(thread: ThreadKey, name: string, reason: string): Promise<void> {
    const path = this.#layout.home(thread, name);
    if (await removeBare(path)) return;
    const whose = await this.owner(thread);
    const facts = { slot: `home-${thread}`, user: whose?.user ?? null, thread: whose?.thread ?? null, reason };
    await ifThere(async () => this.#quarantine.put(path, facts));
  }

  /** Its owner; `null` when none is recorded, or it was purged. */
  async owner(thread: ThreadKey): Promise<Owner | null> {
    const names = (await freshNames(this.#layout.thread(thread), this.#world.wallMs())) ?? [];
    for (const name of names.filter((one) => MADE.test(one))) {
      let text = "";
      if (!(await ifThere(async () => (text = await readFile(this.#layout.home(thread, name), "utf8"))))) continue;
      const parsed = owner.safeParse(tryJson(text));
      if (parsed.success) return parsed.data as Owner;
    }
    return null;
  }

  /** Every thread that has a directory. */
  async *threads(): AsyncGenerator<ThreadKey> {
    for await (const { name } of await opendir(this.#layout.threads, { bufferSize: NAMES_AT_ONCE }))
      if (/^[0-9a-f]{32}$/.test(name)) yield name as ThreadKey;
  }

  /** The names of a thread's records, without asking for each workspace. */
  async names(thread: ThreadKey): Promise<readonly ThreadRecord[]> {
    const names = (await freshNames(this.#layout.thread(thread), this.#world.wallMs())) ?? [];
    return names.map(parseRecord).filter((one) => one !== null);
  }

  /** Forgets a thread that was purged before (Unix milliseconds), unless anything else is in its directory. */
  async forgetPurged(thread: ThreadKey, before: number): Promise<void> {
    const records = await this.read(thread);
    if (records === null || records.homes.length + records.ats.length + records.made.length > 0) return;
    for (const { name } of records.gones) {
      const stats = await statOrNull(this.#layout.home(thread, name));
      if (stats !== null && stats.mtimeMs < before) await this.forget(thread, [name]);
    }
    await ifThere(() => rmdir(this.#layout.thread(thread))).catch((error: unknown) => {
      if (!isTaken(error)) throw error;
    });
  }

  /** Waits until the changes of a thread's directory would survive a power cut of the server. */
  async sync(thread: ThreadKey): Promise<void> {
    const directory = await open(this.#layout.thread(thread), "r");
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  }

  async #make(thread: ThreadKey, whose: Owner, fill: (draft: string) => Promise<void>): Promise<boolean> {
    const nonce = this.#world.randomHex(8);
    const draft = this.#layout.draft(nonce);
    await mkdir(draft);
    await chmod(draft, PASSABLE);
    await writeFile(join(draft, `made.${nonce}`), ownerText(whose), { mode: 0o600, flag: "wx" });
    await fill(draft);
    try {
      await rename(draft, this.#layout.thread(thread));
      return true;
    } catch (error) {
      if (isMissing(error) && (await statOrNull(this.#layout.home(thread, `made.${nonce}`))) !== null) return true;
      this.#trash.throwAway(draft, "draft");
      if (isTaken(error)) return false;
      throw error;
    }
  }
}

function ownerText({ user, thread }: Owner): string {
  return JSON.stringify({ user, thread });
}

/** A workspace that is neither here nor there although a record says where it was sent. */
export function inTransit(thread: ThreadKey): SandlotError {
  const problem = `the workspace ${thread} is being moved into a sandbox`;
  return new SandlotError("engine_unavailable", { engine: "workspaces", problem, tried: [], retryAfterMs: 500 });
}
