/** The findings of the checks. A violation is recorded, never thrown: the code under test would swallow it. */

import type { Trace } from "../schedule/trace.ts";
import type { Invariant, MoveName } from "./invariants.ts";

export interface Violation {
  readonly invariant: Invariant;
  readonly at: number;
  readonly detail: string;
}

/** One fault causes many violations; the first few explain it. */
const VIOLATIONS_MAX = 20;

export class Findings {
  readonly violations: Violation[] = [];
  readonly evaluated = new Map<Invariant, number>();
  readonly moves = new Map<MoveName, number>();
  /** What the promise of a store excepts, and how often that was used: these are no violations. */
  readonly exceptions = new Map<string, number>();
  /** The clause of the promise that excepts this (`store/rewind-exceptions.ts`); `null`: none. */
  exceptionFor: (invariant: Invariant, detail: string) => string | null = () => null;
  readonly #now: () => number;
  readonly #trace: Trace | null;

  constructor(now: () => number, trace: Trace | null = null) {
    this.#now = now;
    this.#trace = trace;
  }

  /** Counts the evaluation, and records a violation when `holds` is false. */
  check(invariant: Invariant, holds: boolean, detail: () => string): void {
    this.evaluated.set(invariant, (this.evaluated.get(invariant) ?? 0) + 1);
    if (holds || this.violations.length >= VIOLATIONS_MAX) return;
    const text = detail();
    const clause = this.exceptionFor(invariant, text);
    if (clause !== null) {
      this.excepted(invariant, clause, () => text);
      return;
    }
    this.violations.push({ invariant, at: this.#now(), detail: text });
    this.#trace?.add("!!!!", invariant, () => text);
  }

  /** Counts the use of a clause. */
  excepted(invariant: Invariant, clause: string, detail: () => string): void {
    const use = `${invariant}, ${clause}`;
    this.exceptions.set(use, (this.exceptions.get(use) ?? 0) + 1);
    this.#trace?.add("----", `excepted ${use}`, detail);
  }

  moved(name: MoveName): void {
    this.moves.set(name, (this.moves.get(name) ?? 0) + 1);
  }
}
