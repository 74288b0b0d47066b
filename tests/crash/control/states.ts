/**
 * What the store shows of one process at the moment when it is killed or stopped.
 *
 *   creating   it creates a sandbox          binding   it holds a blank that has no thread yet
 *   leased     it holds a sandbox            stopping  it ends one
 *   parked     it was the last to hold one   none      nothing of the above
 *
 * One kill may hit several states; it counts once for each.
 */

import { isParked, type SandboxRecord } from "../../../packages/fleet/src/store/record.ts";

export const STATES = ["creating", "binding", "leased", "parked", "stopping", "none"] as const;
export type StateHit = (typeof STATES)[number];

export function statesOf(
  name: string,
  records: readonly SandboxRecord[],
  lastHolderOf: (sandboxId: string) => string | undefined,
): ReadonlySet<StateHit> {
  const hit = new Set<StateHit>();
  for (const record of records) {
    const holders: Readonly<Record<string, unknown>> = record.holders;
    if (record.state !== "ready" && record.actor === name) hit.add(record.state);
    if (name in holders) hit.add(record.boundFrom === null ? "leased" : "binding");
    if (isParked(record) && lastHolderOf(record.sandboxId) === name) hit.add("parked");
  }
  if (hit.size === 0) hit.add("none");
  return hit;
}

/** Violations in a snapshot of the store. */
export function faultsOf(records: readonly SandboxRecord[], max: number): readonly string[] {
  const faults: string[] = [];
  const seen = new Map<string, string>();
  for (const { user, thread, sandboxId } of records) {
    if (user === null || thread === null) continue;
    const key = `${user}/${thread}`;
    const other = seen.get(key);
    if (other !== undefined) faults.push(`two records for ${key}: ${other} and ${sandboxId}`);
    seen.set(key, sandboxId);
  }
  // A record that was claimed for removal takes no room.
  const count = records.filter(({ state }) => state !== "stopping").length;
  if (count > max) faults.push(`${count} sandboxes, although the limit is ${max}`);
  return faults;
}
