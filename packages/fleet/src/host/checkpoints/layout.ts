/**
 * The paths of the checkpoints, below the fleet's directory and so on the same mount as the homes:
 *
 *   checkpoints/<userKey>/lock                      an empty SQLite file: takers and readers hold it SHARED, the
 *                                                   collector EXCLUSIVE
 *   checkpoints/<userKey>/collector                 the same, for one collector at a time
 *   checkpoints/<userKey>/turns/<n>                 one per thread (names share them): who takes or restores holds it
 *   checkpoints/<userKey>/clock                     touched for the file system's time
 *   checkpoints/<userKey>/packs/<random>.pack       contents and tree objects, with their index at the end
 *   checkpoints/<userKey>/packs/.sandlot-draft-*    unfinished packs
 *   checkpoints/<userKey>/mark.due                  a purge wants its bytes removed: the next collection is exact; else
 *                                                   `mark.quiet`, and `mark.collecting` during one
 *   checkpoints/<userKey>/threads/<threadKey>/c.<seq>.<id>   a record; the one with the highest number is the head
 *   checkpoints/<userKey>/threads/<threadKey>/index          the stat cache; may be lost at any time
 *
 * No path contains user input. All of it has mode 0700 and is in no sandbox's mount.
 */

import { closeSync, constants, existsSync, mkdirSync, openSync } from "node:fs";
import { join } from "node:path";
import type { ThreadId, ThreadKey, UserId } from "@sandlot/contract";
import { threadKeyOf } from "../../backend/labels.ts";
import { checkpointsOf, MARK, userKeyOf } from "../workspaces/kept-checkpoints.ts";

export interface StorePaths {
  readonly root: string;
  readonly lock: string;
  readonly collector: string;
  readonly turns: string;
  readonly clock: string;
  readonly packs: string;
  readonly threads: string;
}

export interface ThreadPaths {
  readonly key: ThreadKey;
  readonly directory: string;
  readonly index: string;
}

/** Of one user, by the user's key. */
export function storePaths(fleetRoot: string, userKey: string): StorePaths {
  const root = join(fleetRoot, "checkpoints", userKey);
  return {
    root,
    lock: join(root, "lock"),
    collector: join(root, "collector"),
    turns: join(root, "turns"),
    clock: join(root, "clock"),
    packs: join(root, "packs"),
    threads: join(root, "threads"),
  };
}

export function storePathsOf(fleetRoot: string, user: UserId): StorePaths {
  return storePaths(fleetRoot, userKeyOf(user));
}

export function threadPathsOf(fleetRoot: string, user: UserId, thread: ThreadId): ThreadPaths {
  const key = threadKeyOf(user, thread);
  const directory = checkpointsOf(fleetRoot, user, key);
  return { key, directory, index: join(directory, "index") };
}

export function makeStore(paths: StorePaths): void {
  for (const path of [paths.root, paths.turns, paths.packs, paths.threads])
    mkdirSync(path, { recursive: true, mode: 0o700 });
  // Two makers at once may leave two marks; a collection ends with one.
  if (Object.values(MARK).every((name) => !existsSync(join(paths.root, name))))
    closeSync(openSync(join(paths.root, MARK.quiet), constants.O_CREAT | constants.O_WRONLY, 0o600));
}
