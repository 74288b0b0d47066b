/**
 * Traps: main uses them to stop or kill a process in the middle of a call. A trapped call waits, before its effect or
 * with its response, until main has decided what happens to it.
 *
 * Invariant: no wait is endless. Main decides about every call reported to it, and healing releases all of them.
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

  /** `tell` reports to main that a call of `name` waits. */
  constructor(tell: (held: number, name: string, method: Method) => void) {
    this.#tell = tell;
  }

  set(trap: Trap | null): void {
    this.#trap = this.#later.signal.aborted ? null : trap;
  }

  /** Every call passes here, before its effect and after it. A trap catches one call. */
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
