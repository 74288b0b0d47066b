/**
 * The end of a sandbox that nobody wants any more: with no hold, no request for `timeoutMs`, and nothing running, the
 * daemon ends itself, and its sandbox with it. Whoever started it may be gone for good.
 */

import { timer, wallMs } from "./clock.ts";

export interface Orphanhood {
  readonly timeoutMs: number;
  lastContactAt(): number;
  isHeld(): boolean;
  isBusy(): boolean;
  end(): void;
}

/** What runs is looked at no more often than this. */
const BUSY_LOOK_MS = 1_000;

export function watchForOrphanhood(watched: Orphanhood): void {
  let quietSince = watched.lastContactAt();
  const look = (): void => {
    const now = wallMs();
    quietSince = watched.isHeld() ? now : Math.max(quietSince, watched.lastContactAt());
    // A clock that was set back must not make the wait longer than it is.
    const leftMs = Math.min(watched.timeoutMs, quietSince + watched.timeoutMs - now);
    if (leftMs > 0) timer(leftMs, look);
    else if (watched.isBusy()) timer(Math.min(BUSY_LOOK_MS, watched.timeoutMs), look);
    else watched.end();
  };
  timer(watched.timeoutMs, look);
}
