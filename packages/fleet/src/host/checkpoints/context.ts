/** What a worker works with: the store of one user and one thread's part of it. */

import type { ThreadId, UserId } from "@sandlot/contract";
import { noRoomInOurWords } from "../../world/disk-trouble.ts";
import { draftName } from "../../world/drafts.ts";
import type { World } from "../../world/world.ts";
import type { DiskWorkspaces } from "../workspaces/disk-workspaces.ts";
import { makeStore, type StorePaths, storePathsOf, type ThreadPaths, threadPathsOf } from "./layout.ts";
import type { CheckpointOptions } from "./options.ts";
import { PackWriter } from "./store/pack-writer.ts";
import { Packs } from "./store/packs.ts";

export interface Owner {
  readonly user: UserId;
  readonly thread: ThreadId;
}

export interface Progress {
  readonly phase: "walking" | "storing" | "comparing" | "applying" | "reading";
  readonly files: number;
  readonly bytes: number;
  readonly totalFiles: number | null;
}

export interface Context {
  /** The fleet's directory. */
  readonly root: string;
  readonly options: CheckpointOptions;
  readonly world: World;
  readonly workspaces: DiskWorkspaces;
  readonly onProgress: (progress: Progress) => void;
}

/** Works with the store of a thread's user. A full disk is an error of ours, also where the store has to be made. */
export async function withStore<T>(
  context: Context,
  { user, thread }: Owner,
  work: (store: Store) => Promise<T>,
): Promise<T> {
  let store: Store | null = null;
  try {
    store = new Store(context, user);
    return await work(store);
  } catch (error) {
    throw noRoomInOurWords(error, thread);
  } finally {
    store?.close();
  }
}

/** One user's store, made when missing. */
export class Store {
  readonly paths: StorePaths;
  readonly packs: Packs;
  readonly #context: Context;

  constructor(context: Context, user: UserId) {
    this.#context = context;
    this.paths = storePathsOf(context.root, user);
    makeStore(this.paths);
    this.packs = new Packs(this.paths.packs);
  }

  /** A free name for an unfinished file beside the packs. */
  draft(): string {
    return `${this.paths.packs}/${draftName(this.#context.world)}`;
  }

  writer(admit?: (bytes: number) => void): PackWriter {
    const name = this.#context.world.randomHex(12);
    return new PackWriter(this.packs, { draft: this.draft(), name, ...(admit !== undefined && { admit }) });
  }

  close(): void {
    this.packs.close();
  }
}

export function threadOf(context: Context, { user, thread }: Owner): ThreadPaths {
  return threadPathsOf(context.root, user, thread);
}
