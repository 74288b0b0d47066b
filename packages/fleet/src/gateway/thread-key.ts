/** Whose thread it is, and which. */

import type { ThreadId, UserId } from "@sandlot/contract";

export interface ThreadKey {
  readonly user: UserId;
  readonly thread: ThreadId;
}
