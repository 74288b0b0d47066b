/** Waits that can be aborted. */

/** One signal for several, or none. */
export function anySignal(...signals: readonly (AbortSignal | undefined)[]): AbortSignal | undefined {
  const present = signals.filter((signal) => signal !== undefined);
  return present.length > 1 ? AbortSignal.any(present) : present[0];
}

/** The promise's result, unless the signal fires first: then its reason. The promise itself goes on. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise<T>((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** Calls `fire` later. Does not keep the process alive. */
export function later(delayMs: number, fire: () => void): void {
  AbortSignal.timeout(delayMs).addEventListener("abort", fire, { once: true });
}
