/** Removes what crashes have left on a shared volume: drafts, trash, slots without a sandbox, long purged threads. */

import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { statOrNull } from "./fresh-names.ts";
import type { VolumeWorkspaces } from "./volume-workspaces.ts";

/** How long a purged thread is remembered. No older generation comes back after that time. */
const FENCE_RETENTION_MS = 7 * 24 * 3_600_000;
/** Making something takes seconds at most; a paused gateway may take longer, and then makes it again. */
const DRAFT_MAX_AGE_MS = 3_600_000;

export async function sweepVolume(
  volume: VolumeWorkspaces,
  isKnown: (slot: string) => Promise<boolean>,
): Promise<void> {
  const { layout, slots, threads, trash, world } = volume;
  const now = world.wallMs();
  for (const name of await readdir(layout.drafts)) {
    const path = join(layout.drafts, name);
    const stats = await statOrNull(path);
    if (stats !== null && stats.mtimeMs < now - DRAFT_MAX_AGE_MS) trash.throwAway(path, "draft");
  }
  for (const slot of await slots.names("open")) {
    const stats = await statOrNull(layout.slot(slot));
    if (stats === null || stats.ctimeMs > now - DRAFT_MAX_AGE_MS || (await isKnown(slot))) continue;
    await volume.release(`slot:${slot}`);
  }
  // One with a workspace stays: its thread's next sandbox fetches it.
  for (const slot of await slots.names("released")) await slots.dropIfOver(slot);
  for await (const thread of threads.threads()) await threads.forgetPurged(thread, now - FENCE_RETENTION_MS);
  await trash.empty();
}
