/**
 * Running calls of one caller, by the id of their request. Over HTTP an older client cancels with a separate message,
 * which arrives at another server object than the call; this is how it finds the call.
 *
 * Two connections of one caller may use the same id at the same time. Then a cancellation is ambiguous, and neither
 * call is cancelled.
 */

export class CallsUnderWay {
  readonly #calls = new Map<string | number, Set<AbortController>>();

  /** Runs a call with a signal that also fires when it is cancelled from elsewhere. */
  async run<T>(id: string | number, signal: AbortSignal, call: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const controller = new AbortController();
    const same = this.#calls.get(id) ?? new Set();
    this.#calls.set(id, same.add(controller));
    try {
      return await call(AbortSignal.any([signal, controller.signal]));
    } finally {
      same.delete(controller);
      if (same.size === 0) this.#calls.delete(id);
    }
  }

  cancel(id: string | number, reason: string): void {
    const [only, other] = this.#calls.get(id) ?? [];
    if (other === undefined) only?.abort(new Error(reason));
  }
}
