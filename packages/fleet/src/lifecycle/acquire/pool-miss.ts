/** Why a thread's sandbox is made, instead of bound from a blank. */

import type { PoolMiss } from "@sandlot/contract";
import type { Backend } from "../../backend/backend.ts";
import type { NamedBlueprint, Settings } from "../../config/settings.ts";

export function poolMiss(
  { name, hash }: NamedBlueprint,
  { pool, blueprints }: Pick<Settings, "pool" | "blueprints">,
  { capabilities }: Pick<Backend, "capabilities">,
): PoolMiss {
  if (!capabilities.has("late-binding")) return "unsupported";
  const kept = Object.entries(pool).flatMap(([one, count]) => (count > 0 ? (blueprints[one]?.hash ?? []) : []));
  if (kept.includes(hash)) return "none-ready";
  const own = blueprints[name]?.hash;
  return own !== undefined && own !== hash && kept.includes(own) ? "own-mounts" : "not-kept";
}
