/** Whose thread it is, and which. */

import type { ThreadId, UserId } from "@sandlot/contract";

export interface ThreadKey {
  readonly user: UserId;
  readonly thread: ThreadId;
  /** The blueprints that the caller's key may use; `null` or left out: every one. */
  readonly granted?: readonly string[] | null;
}
