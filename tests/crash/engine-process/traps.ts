/**
 * Traps: how main gets to stop or kill a process in the middle of a call. A call that falls into the trap waits, before
 * its effect or with its answer, until main has decided what becomes of it.
 *
 * Invariant: nothing waits for ever. Main decides about every call it was told of, and healing lets all of them go.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { Method, Trap } from "../wire.ts";

export type Passage = "go" | "drop";
type Decide = (decision: Passage) => void;

export class Traps {
  readonly #tell: (held: number, name: string, method: Method) => void;
  readonly #held = new Map<number, Decide>();
  readonly #later = new AbortController();
  #trap: Trap | null = null;
  #ids = 0;

  /** `tell` says to main that a call of `name` waits. */
  constructor(tell: (held: number, name: string, method: Method) => void) {
    this.#tell = tell;
  }

  set(trap: Trap | null): void {
    this.#trap = this.#later.signal.aborted ? null : trap;
  }

  /** Where every call passes, before its effect and after it. A trap catches one call. */
  pass(when: Trap["when"], name: string, method: Method): Promise<Passage> | Passage {
    const trap = this.#trap;
    if (trap === null || trap.when !== when || !trap.methods.includes(method)) return "go";
    this.#trap = null;
    this.#ids += 1;
    const held = this.#ids;
    return new Promise((resolve) => {
      this.#held.set(held, resolve);
      this.#tell(held, name, method);
    });
  }

  async decide(held: number, decision: { readonly kind: Passage; readonly afterMs: number }): Promise<void> {
    // Healing ends the wait, not the decision.
    await sleep(decision.afterMs, undefined, { signal: this.#later.signal }).catch(() => {});
    this.#held.get(held)?.(decision.kind);
    this.#held.delete(held);
  }

  heal(): void {
    this.#trap = null;
    this.#later.abort();
    for (const go of this.#held.values()) go("go");
    this.#held.clear();
  }
}
