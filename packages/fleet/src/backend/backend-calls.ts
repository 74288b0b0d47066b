/**
 * How a backend abandons a call, and what happens to its calls when it closes.
 *
 * Invariants
 * - After `end` no call begins; each is `fleet_closed`.
 * - A caller that leaves does not stop a create in the middle: it goes on until it is made or unmade. `end` aborts it.
 */

import { SandlotError } from "@sandlot/contract";
import { abortable } from "../world/waiting.ts";

export class BackendCalls {
  readonly #ending = new AbortController();
  readonly #creating = new Set<Promise<unknown>>();

  /** Fires when the backend closes. */
  get ending(): AbortSignal {
    return this.#ending.signal;
  }

  /** Runs a call, and stops waiting when the signal fires. A signal that has fired already starts no call. */
  async ask<T>(operation: string, signal: AbortSignal, call: () => Promise<T>): Promise<T> {
    if (this.ending.aborted) throw closedError(operation);
    signal.throwIfAborted();
    return abortable(call(), signal);
  }

  /** The same for a create. Its signal fires when the caller leaves or the backend closes. */
  create<T>(signal: AbortSignal, make: (signal: AbortSignal) => Promise<T>): Promise<T> {
    return this.ask("create", signal, () => {
      const creating = make(AbortSignal.any([signal, this.ending]));
      this.#creating.add(creating);
      const done = () => this.#creating.delete(creating);
      creating.then(done, done);
      return creating;
    });
  }

  end(): void {
    this.#ending.abort(closedError("create"));
  }

  /** Resolves when every create has settled, also by a failure. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#creating);
  }
}

function closedError(operation: string): SandlotError {
  return new SandlotError("fleet_closed", { operation });
}
