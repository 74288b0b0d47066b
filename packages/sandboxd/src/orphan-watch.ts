/**
 * Ends an orphaned sandbox: with no hold, no request for `timeoutMs`, and nothing running, the daemon ends itself, and
 * its sandbox with it. Its fleet may be gone for good.
 *
 * A sandbox that stood still (paused, or its host asleep) could not receive requests in that time: it waits anew.
 */

import { timer, wallMs } from "./clock.ts";

export interface Orphanhood {
  readonly timeoutMs: number;
  lastContactAt(): number;
  isHeld(): boolean;
  isBusy(): boolean;
  end(): void;
}

/** The shortest interval between two checks of a busy sandbox. */
const BUSY_LOOK_MS = 1_000;
/** A check that is later than this means that the whole sandbox stood still. */
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
    // A clock that was set back must not lengthen the wait.
    const leftMs = Math.min(watched.timeoutMs, quietSince + watched.timeoutMs - now);
    if (leftMs > 0) lookIn(leftMs);
    else if (watched.isBusy()) lookIn(Math.min(BUSY_LOOK_MS, watched.timeoutMs));
    else watched.end();
  };
  lookIn(watched.timeoutMs);
}
