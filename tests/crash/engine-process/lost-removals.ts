/**
 * Which workspaces of callers without a thread may be left: those whose removal was lost with its epoch, and no other.
 *
 *   failover ── sandbox ends, record `stopping` ── new epoch: the record is dropped ──▶ nothing shows the workspace
 *
 * A thread's own workspace stays where it is, and its next sandbox finds it. An anonymous one has no next sandbox.
 *
 * - The lost epoch knew the sandbox: by a record when the failover began, or by one that it got since.
 * - The sandbox had ended before an instance could know of the new epoch, which is half of a session's lifetime later. A
 *   sandbox that ended after that is stopped, and removed with its workspace, by a record of the new epoch.
 */

import { type EngineLedger, nameOf } from "../../simulation/engine/ledger.ts";

/** A failover after which a new epoch began. */
export interface Loss {
  readonly openedAt: number;
  /** Sandboxes with a record when it began. */
  readonly recorded: ReadonlySet<string>;
  readonly newEpochAt: number;
}

export interface EndedSandbox {
  readonly sandboxId: string;
  readonly landedAt: number;
  readonly endedAt: number;
}

export function isLostRemoval(
  { sandboxId, landedAt, endedAt }: EndedSandbox,
  losses: readonly Loss[],
  sessionLifetimeMs: number,
): boolean {
  return losses.some(
    ({ openedAt, recorded, newEpochAt }) =>
      (recorded.has(sandboxId) || (landedAt >= openedAt && landedAt <= newEpochAt)) &&
      endedAt <= newEpochAt + sessionLifetimeMs / 2,
  );
}

/** The last sandbox of each owner whose sandboxes have all left the engine. */
export function lastEnded(ledger: EngineLedger): ReadonlyMap<string, EndedSandbox> {
  const last = new Map<string, EndedSandbox>();
  for (const { object, markers, at } of ledger.departed.values()) {
    const owners = new Set([...markers.values()].map(nameOf));
    if (object.mount !== null) owners.add(object.mount.owner);
    const { landedAt, labels, diedAt } = object;
    for (const owner of owners)
      if (landedAt >= (last.get(owner)?.landedAt ?? 0))
        last.set(owner, { sandboxId: labels.sandboxId, landedAt, endedAt: diedAt ?? at });
  }
  return last;
}
