/**
 * Finds a thread's workspace for reading and writing without a sandbox, at home or in a slot, and makes an empty one where
 * there is none.
 *
 * A workspace that is made here is used only after a second look: if another one is there by then, the new one, which is
 * still empty, is removed. So what is written here is never in a workspace that is not found again.
 */

import { openSync } from "node:fs";
import type { ThreadKey } from "@sandlot/contract";
import { threadKeyOf } from "../../../../backend/labels.ts";
import { OPEN_DIRECTORY } from "../../../../host/descriptors.ts";
import type { Owner } from "../../../../host/workspaces/homes.ts";
import { unlessMissing } from "../../../../world/disk-trouble.ts";
import { sleep } from "../../../../world/waiting.ts";
import { homeName, NO_SANDBOX } from "./layout.ts";
import type { ThreadRecords } from "./thread-records.ts";
import { inTransit } from "./volume-threads.ts";
import type { VolumeWorkspaces } from "./volume-workspaces.ts";

/** A move takes a few calls to the server. */
const TRANSIT_LOOKS_MAX = 20;
const TRANSIT_PAUSE_MS = 100;

/** A descriptor of the workspace; `null` when there is none. */
export async function locateWorkspace(volume: VolumeWorkspaces, owner: Owner, make: boolean): Promise<number | null> {
  const thread = threadKeyOf(owner.user, owner.thread);
  const { threads, world } = volume;
  for (let looks = 1; looks <= TRANSIT_LOOKS_MAX; looks++) {
    const records = await threads.read(thread);
    const found = records === null ? null : await openPresent(volume, thread, records);
    if (found !== null && found !== "moving") return found;
    if (found === "moving") await sleep(world, TRANSIT_PAUSE_MS);
    else if (!make) return null;
    else if (records === null) await threads.make(thread, owner, { home: homeName(NEVER_USED) });
    else await makeAtHome(volume, thread, owner, records);
  }
  throw inTransit(thread);
}

const NEVER_USED = { generation: 0 as never, sandboxId: NO_SANDBOX };

async function openPresent(
  { layout, slots }: VolumeWorkspaces,
  thread: ThreadKey,
  { at, home }: ThreadRecords,
): Promise<number | "moving" | null> {
  const isSent = at !== null && (home === null || at.generation > home.generation);
  if (isSent) {
    const tenant = await slots.tenant(at.slot, thread);
    const inSlot =
      tenant === null ? undefined : await slots.reach(at.slot, tenant, async (path) => openSync(path, OPEN_DIRECTORY));
    if (inSlot !== undefined) return inSlot;
  }
  if (home !== null) return unlessMissing(() => openSync(layout.home(thread, home.name), OPEN_DIRECTORY)) ?? "moving";
  // Recorded and not there: it is on its way, or being made, as long as its sandbox may run.
  return isSent && (await slots.state(at.slot)) === "open" ? "moving" : null;
}

async function makeAtHome(
  volume: VolumeWorkspaces,
  thread: ThreadKey,
  owner: Owner,
  records: ThreadRecords,
): Promise<void> {
  const { threads } = volume;
  await threads.own(thread, records, owner);
  if (!(await threads.makeHome(thread, records.nextHome))) return;
  const now = await threads.read(thread);
  const isOvertaken = now !== null && now.last.generation > records.last.generation;
  if (isOvertaken && now.homes.some(({ name }) => name === records.nextHome))
    await threads.setAside(thread, records.nextHome, "another workspace was made at the same time");
}
