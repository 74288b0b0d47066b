/**
 * Gives a thread without a workspace a copy of another's. All or nothing: the copy is built aside and moved home when it is
 * complete. A thread that has a workspace, here or in a sandbox, keeps it: `thread_exists`.
 */

import { SandlotError } from "@sandlot/contract";
import { threadKeyOf } from "../../../../backend/labels.ts";
import type { Owner } from "../../../../host/workspaces/homes.ts";
import type { CopyLimits, CopyOutcome } from "../../../../host/workspaces/tree-copy.ts";
import { noRoomInOurWords } from "../../../../world/disk-trouble.ts";
import type { VolumeWorkspaces } from "./volume-workspaces.ts";

export async function branchWorkspace(
  volume: VolumeWorkspaces,
  from: Owner,
  to: Owner,
  limits?: CopyLimits,
): Promise<CopyOutcome> {
  const thread = threadKeyOf(to.user, to.thread);
  const taken = () => new SandlotError("thread_exists", { thread: to.thread });
  const checkFree = async () => {
    const present = await volume.locate(to);
    present?.close();
    if (present !== null) throw taken();
  };
  await checkFree();
  const { at } = await volume.threads.draftTree();
  try {
    const source = await volume.locate(from);
    const copied =
      source === null
        ? { fileCount: 0, sizeBytes: 0, skipped: [] }
        : await source.copyTo(at, limits).finally(() => source.close());
    if (!(await volume.threads.adopt(thread, to, at))) throw taken();
    await volume.threads.sync(thread);
    return copied;
  } catch (error) {
    volume.trash.throwAway(at, thread);
    await volume.trash.empty(thread);
    throw noRoomInOurWords(error, `home:${thread}`);
  }
}
