/**
 * The end of a sandbox that nobody wants any more: with no hold, no request for `timeoutMs`, and nothing running, the
 * daemon ends itself, and its sandbox with it. Whoever started it may be gone for good.
 *
 * A sandbox that stood still (paused, or its host asleep) could not be asked in that time: it begins to wait anew.
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
/** A look that comes later than this was not late: everything here stood still. */
const STANDSTILL_MS = 1_000;

export function watchForOrphanhood(watched: Orphanhood): void {
  let quietSince = watched.lastContactAt();
  let dueAt = wallMs() + watched.timeoutMs;
  const lookIn = (ms: number): void => {
    dueAt = wallMs() + ms;
    timer(ms, look);
  };
  const look = (): void => {
    const now = wallMs();
    const stoodStill = now - dueAt > STANDSTILL_MS;
    quietSince = stoodStill || watched.isHeld() ? now : Math.max(quietSince, watched.lastContactAt());
    // A clock that was set back must not make the wait longer than it is.
    const leftMs = Math.min(watched.timeoutMs, quietSince + watched.timeoutMs - now);
    if (leftMs > 0) lookIn(leftMs);
    else if (watched.isBusy()) lookIn(Math.min(BUSY_LOOK_MS, watched.timeoutMs));
    else watched.end();
  };
  lookIn(watched.timeoutMs);
}
