/** The only file of the client that reads the time, sets timers and draws random numbers. */

import { SandlotError } from "@sandlot/contract";

/** Resolves after `ms`; rejects with the signal's reason when that fires first. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason);
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** Calls `fire` later, without keeping the process alive. Returns a cancel function. */
export function later(ms: number, fire: () => void): () => void {
  const timer: unknown = setTimeout(fire, ms);
  // In a browser a timer is a number, and there is no process to keep alive.
  if (typeof timer === "object" && timer !== null && "unref" in timer && typeof timer.unref === "function")
    timer.unref();
  return () => clearTimeout(timer as number);
}

/** Runs `work` with a signal that also fires when time is up; then it is `acquire_timeout`. */
export async function within<T>(
  timeoutMs: number | undefined,
  signal: AbortSignal | undefined,
  work: (signal: AbortSignal | undefined) => Promise<T>,
): Promise<T> {
  if (timeoutMs === undefined) return work(signal);
  const late = new SandlotError("acquire_timeout", { stage: "waiting for the gateway", timeoutMs });
  const timer = new AbortController();
  const stop = later(timeoutMs, () => timer.abort(late));
  try {
    return await work(signal === undefined ? timer.signal : AbortSignal.any([signal, timer.signal]));
  } finally {
    stop();
  }
}

/** A duration around `ms`, so that clients that failed together do not retry together. */
export function around(ms: number): number {
  return ms * (0.5 + Math.random());
}

export function randomId(): string {
  return crypto.randomUUID();
}

/** For durations: it does not jump with the wall clock. */
export function monotonicMs(): number {
  return performance.now();
}

export function wallMs(): number {
  return Date.now();
}

export function now(): Date {
  return new Date();
}
