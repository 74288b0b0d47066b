/**
 * Looks for a thread's sandbox where "there is none" must be true. A store that has lost what it knew answers that for
 * every sandbox, until the instances have told it again; here it is `store_recovering`.
 */

import { SandlotError, type ThreadId, type UserId } from "@sandlot/contract";
import type { SandboxRecord } from "../../store/record.ts";
import type { LocateRequest, Store } from "../../store/store.ts";

export async function findCertainly(
  store: Pick<Store, "find" | "locate">,
  request: LocateRequest & { readonly user: UserId; readonly thread: ThreadId },
  lifetimeMs: number,
): Promise<SandboxRecord | null> {
  let known: string | null = null;
  for (;;) {
    const record = await store.find(request.user, request.thread);
    if (record !== null) return record;
    const { epoch, recovering } = await store.locate(request);
    if (recovering) throw new SandlotError("store_recovering", { epoch, retryAfterMs: lifetimeMs });
    // The look may be older than the recovery or than a loss: it counts in an epoch that was known before and after it.
    if (epoch === known) return null;
    known = epoch;
  }
}
