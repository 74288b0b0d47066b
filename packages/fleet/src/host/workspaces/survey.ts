/** What is known of all threads together, read from their homes one after the other. */

import type { ThreadKey } from "@sandlot/contract";
import { errnoOf } from "../../world/disk-trouble.ts";
import type { Homes, Owner } from "./homes.ts";

/** The threads that have a workspace, at home or in a slot. */
export async function ownersOf(homes: Homes): Promise<readonly Owner[]> {
  const found: Owner[] = [];
  for await (const thread of homes.threads()) {
    const owner = homes.has(thread) || homes.slotOf(thread) !== null ? homes.owner(thread) : null;
    if (owner !== null) found.push(owner);
  }
  return found;
}

/**
 * The highest generation of any fence, also of a thread that was purged lately. Leaves out homes that cannot be read, and
 * reports them: such a thread is refused with that error when it is used, and no other thread has to wait for its repair.
 */
export async function latestGenerationOf(homes: Homes, onProblem: (problem: string) => void): Promise<number> {
  let latest = 0;
  const unreadable: { readonly thread: ThreadKey; readonly error: unknown }[] = [];
  for await (const thread of homes.threads()) {
    try {
      latest = Math.max(latest, homes.lastUse(thread).generation);
    } catch (error) {
      if (errnoOf(error) === undefined) throw error;
      unreadable.push({ thread, error });
    }
  }
  const [first] = unreadable;
  if (first !== undefined)
    onProblem(`${unreadable.length} homes cannot be read, such as ${first.thread}: ${(first.error as Error).message}`);
  return latest;
}
