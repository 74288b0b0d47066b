/** How many sandboxes one user may have (the user's own limit if set, otherwise the limit for every user), and one engine. */

import type { UserId } from "@sandlot/contract";
import type { LimitSettings } from "../../config/settings.ts";

/** `null`: the store enforces no limit. The store does not enforce soft limits. */
export function userLimit({ mode, maxPerUser, users = {} }: LimitSettings, user: UserId): number | null {
  if (mode === "soft") return null;
  // A user's name may equal a property that every object has.
  const max = (Object.hasOwn(users, user) ? users[user]?.max : undefined) ?? maxPerUser;
  return max === 0 ? null : max;
}

/** `null`: the store enforces no limit. */
export function engineLimit({ mode, maxPerEngine }: LimitSettings): number | null {
  return mode === "soft" || maxPerEngine === 0 ? null : maxPerEngine;
}
