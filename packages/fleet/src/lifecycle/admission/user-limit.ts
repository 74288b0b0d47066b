/** How many sandboxes one user may have: the user's own limit where there is one, otherwise that of every user. */

import type { UserId } from "@sandlot/contract";
import type { LimitSettings } from "../../config/settings.ts";

/** `null`: no limit that a store has to keep. A soft limit is not for the store. */
export function userLimit({ mode, maxPerUser, users = {} }: LimitSettings, user: UserId): number | null {
  if (mode === "soft") return null;
  // A user may be called as a property that every object has.
  const max = (Object.hasOwn(users, user) ? users[user]?.max : undefined) ?? maxPerUser;
  return max === 0 ? null : max;
}
