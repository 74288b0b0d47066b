/** The bounds of thread and user, and the room on the disk. */

import { statfsSync } from "node:fs";
import { SandlotError } from "@sandlot/contract";
import type { Context, Owner, Store } from "../context.ts";
import type { CheckpointRecord } from "../records.ts";
import { packBytes } from "../store/packs.ts";

/** How often the disk is asked for its room, in bytes written. */
const ROOM_EVERY_BYTES = 64 * 1024 * 1024;

/** Says how much more a checkpoint may add: throws where the next bytes would pass a bound. */
export function admission(
  context: Context,
  store: Store,
  owner: Owner,
  records: readonly CheckpointRecord[],
): (bytes: number) => void {
  const { threadBytesMax, userBytesMax } = context.options;
  let ofThread = records.reduce((sum, { addedBytes }) => sum + addedBytes, 0);
  let ofUser = packBytes(store.paths.packs);
  let untilRoom = 0;
  return (bytes) => {
    ofThread += bytes;
    ofUser += bytes;
    if (ofThread > threadBytesMax) throw refused(owner, "stored bytes of the thread", threadBytesMax, ofThread);
    if (ofUser > userBytesMax) throw refused(owner, "stored bytes of the user", userBytesMax, ofUser);
    untilRoom -= bytes;
    if (untilRoom > 0) return;
    checkRoom(context, owner, store.paths.root, bytes);
    untilRoom = ROOM_EVERY_BYTES;
  };
}

/** Refuses what would leave too little on the disk for sandboxes. */
function checkRoom({ options }: Context, owner: Owner, path: string, bytes: number): void {
  const { bavail, bsize } = statfsSync(path);
  const left = bavail * bsize - bytes;
  if (left >= options.freeBytesMin) return;
  const { thread } = owner;
  throw new SandlotError("checkpoint_refused", {
    ...{
      thread,
      bound: "bytes used on the disk",
      max: Math.max(0, bavail * bsize - options.freeBytesMin),
      actual: bytes,
    },
  });
}

/** A labelled checkpoint never goes, so there is a last one. */
export function checkLabels({ options }: Context, owner: Owner, records: readonly CheckpointRecord[]): void {
  const max = Math.max(1, Math.floor(options.threadCheckpointsMax / 2));
  const actual = records.filter(({ label }) => label !== null).length + 1;
  if (actual > max) throw refused(owner, "the number of labelled checkpoints", max, actual);
}

function refused({ thread }: Owner, bound: string, max: number, actual: number): SandlotError {
  return new SandlotError("checkpoint_refused", { thread, bound, max, actual });
}
