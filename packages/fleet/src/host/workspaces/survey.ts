/**
 * What is known of all threads together, read from their homes one after the other. A fleet may have very many: others
 * of this process have their turn in between.
 */

import type { ThreadKey } from "@sandlot/contract";
import { errnoOf } from "../../world/disk-trouble.ts";
import { sleep } from "../../world/waiting.ts";
import type { Owner } from "./homes.ts";
import type { DiskParts } from "./parts.ts";

/** Some milliseconds' worth of small files. */
const HOMES_AT_ONCE = 100;

type Parts = Pick<DiskParts, "homes" | "world">;

/** The threads that have a workspace, at home or in a slot. */
export async function ownersOf({ homes, world }: Parts): Promise<readonly Owner[]> {
  const found: Owner[] = [];
  await eachThread({ homes, world }, (thread) => {
    const owner = homes.has(thread) || homes.slotOf(thread) !== null ? homes.owner(thread) : null;
    if (owner !== null) found.push(owner);
  });
  return found;
}

/**
 * The highest generation of any fence, also of a thread that was purged lately. Leaves out a home that cannot be read: its
 * thread is refused with that error when it is used, and no other thread has to wait for its repair.
 */
export async function latestGenerationOf({ homes, world }: Parts): Promise<number> {
  let latest = 0;
  await eachThread({ homes, world }, (thread) => {
    try {
      latest = Math.max(latest, homes.lastUse(thread).generation);
    } catch (error) {
      if (errnoOf(error) === undefined) throw error;
    }
  });
  return latest;
}

async function eachThread({ homes, world }: Parts, visit: (thread: ThreadKey) => void): Promise<void> {
  for (const [count, thread] of homes.threads().entries()) {
    if (count % HOMES_AT_ONCE === HOMES_AT_ONCE - 1) await sleep(world, 0);
    visit(thread);
  }
}
