/**
 * The daemon's clock. The only file of sandboxd that reads the time or sets a timer.
 */

export interface Timer {
  cancel(): void;
}

/** The longest delay of a Node timer; a longer one would fire at once. */
const TIMER_MAX_MS = 2 ** 31 - 1;

export function wallMs(): number {
  return Date.now();
}

/** `performance` would load a part of Node that nothing else needs, during the first command. */
export function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1_000 + nanoseconds / 1e6;
}

/** Does not keep the daemon alive: only its server and its commands do. */
export function timer(delayMs: number, fire: () => void): Timer {
  const timeout = setTimeout(fire, Math.min(delayMs, TIMER_MAX_MS));
  timeout.unref();
  return { cancel: () => clearTimeout(timeout) };
}

export function sleep(delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, delayMs);
  });
}

/** Lets everything else that is ready run first. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

/**
 * The kernel's clock ticks since boot, as in the start time of a process. Never ahead of the real value: it leaves out
 * time that the machine slept.
 */
export function bootTicks(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * TICKS_PER_SECOND + Math.floor((nanoseconds / 1e9) * TICKS_PER_SECOND) - 1;
}

/** USER_HZ: 100 on every Linux that Node runs on. */
export const TICKS_PER_SECOND = 100;
