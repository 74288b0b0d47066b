/**
 * A world without its own time: short timers fire when the scheduler gets to them. Long ones (housekeeping, deadlines)
 * never fire, because a model that waited for them would model housekeeping.
 */

import type { Scheduler } from "fast-check";
import type { Timer, World } from "../../packages/fleet/src/world/world.ts";

const LONG_MS = 1_000;

export function tinyWorld(scheduler: Scheduler): World {
  let now = 0;
  let hex = 0;
  return {
    wallMs: () => 1_800_000_000_000 + now,
    monotonicMs: () => now,
    timer: (delayMs: number, fire: () => void): Timer => {
      let cancelled = false;
      const due = now + delayMs;
      if (delayMs < LONG_MS) {
        void scheduler.schedule(Promise.resolve(), `timer ${delayMs}`).then(() => {
          now = Math.max(now, due);
          if (!cancelled) fire();
        });
      }
      return {
        cancel: () => {
          cancelled = true;
        },
      };
    },
    random: () => 0.5,
    randomHex: (bytes: number) => {
      hex += 1;
      return hex.toString(16).padStart(bytes * 2, "0");
    },
    identity: { bootId: "model", pidNamespace: "model", pid: 1, startTime: "0" },
    processLiveness: () => "alive",
  };
}
