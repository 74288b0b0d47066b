/** A user's thread. */

import type { ThreadId, UserId } from "@sandlot/contract";

export interface ThreadKey {
  readonly user: UserId;
  readonly thread: ThreadId;
  /** The blueprints that the caller's key may use; `null` or absent: all. */
  readonly granted?: readonly string[] | null;
}
