/** Removes one checkpoint. Its children keep their trees and get its parent as theirs. */

import { join } from "node:path";
import { unlessMissing } from "../../../world/disk-trouble.ts";
import { draftName } from "../../../world/drafts.ts";
import type { World } from "../../../world/world.ts";
import { type Context, type Owner, threadOf, withStore } from "../context.ts";
import { findRecord } from "../history.ts";
import { type CheckpointRecord, readRecords, recordName, replaceRecord } from "../records.ts";
import { calls, syncDirectory } from "../store/calls.ts";
import { inTurn, shared } from "../store/store-locks.ts";

export function remove(context: Context, owner: Owner, checkpoint: string): Promise<void> {
  const { directory } = threadOf(context, owner);
  return withStore(context, owner, (store) => {
    const { lock, turns } = store.paths;
    const work = async () => {
      const record = findRecord(readRecords(directory), owner.thread, checkpoint);
      reparent(context.world, directory, record);
      unlessMissing(() => calls.unlink(join(directory, recordName(record))));
      syncDirectory(directory);
    };
    return inTurn(turns, owner.thread, context.world, () => shared(lock, context.world, work));
  });
}

/** Before the record goes: a crash in between leaves a child that names its grandparent, which is right already. */
export function reparent(world: World, directory: string, gone: CheckpointRecord): void {
  for (const record of readRecords(directory))
    if (record.parent === gone.id)
      replaceRecord(directory, join(directory, draftName(world)), { ...record, parent: gone.parent });
}
