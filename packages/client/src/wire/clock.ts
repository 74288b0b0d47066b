/** The one file of the client that sets timers and draws random numbers. */

/** Resolves after `ms`; rejects with the signal's reason when that comes first. */
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

/** Calls `fire` later, without keeping a process alive for it. Returns how not to. */
export function later(ms: number, fire: () => void): () => void {
  const timer: unknown = setTimeout(fire, ms);
  // In a browser a timer is a number, and there is no process to keep alive.
  if (typeof timer === "object" && timer !== null && "unref" in timer && typeof timer.unref === "function")
    timer.unref();
  return () => clearTimeout(timer as number);
}

/** A duration around `ms`, so that many clients that failed together do not come back together. */
export function around(ms: number): number {
  return ms * (0.5 + Math.random());
}

export function randomId(): string {
  return crypto.randomUUID();
}

export function wallMs(): number {
  return Date.now();
}
