/**
 * A call from an instance to the outside: it leaves, takes effect, and gets its response, at three moments. Faults are
 * differences in these three: no effect, an effect after the response, no response.
 */

import type { FaultKind } from "../faults.ts";
import type { Random } from "../schedule/random.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import type { Ambush, Process } from "./process.ts";

export interface Plan {
  /** `null`: it never takes effect. */
  readonly effectMs: number | null;
  /** After the call was made; an ordinary response never comes before the effect. `null`: no response. */
  readonly answerMs: number | null;
  /** Replaces the effect's result. */
  readonly error?: unknown;
}

export interface CallsParts {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly process: Process;
  /** Counts what an ambush did. */
  readonly count: (kind: FaultKind) => void;
  /** The process was killed at this call. */
  readonly onKilled: () => void;
  readonly onPaused: (forMs: number) => void;
}

/** A promise that never settles: its process is dead. */
const SILENCE = new Promise<never>(() => undefined);

export class Calls {
  readonly #parts: CallsParts;
  /** Calls made so far: work without I/O does not raise it. */
  made = 0;

  constructor(parts: CallsParts) {
    this.#parts = parts;
  }

  /** Makes a call. `effect` runs at most once; an error it throws is the response. */
  make<T>(plan: Plan, effect: () => T, signal?: AbortSignal): Promise<T> {
    const { process, scheduler, random } = this.#parts;
    if (!process.alive) return SILENCE;
    this.made += 1;
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    const ambush = this.#ambush();
    if (ambush?.act === "kill-before-effect") return this.#die("kill-before-effect");
    return new Promise<T>((resolve, reject) => {
      let settled = false;
      let result: { readonly value: T } | { readonly error: unknown } | null = null;
      const settle = () => {
        if (settled) return;
        settled = true;
        signal?.removeEventListener("abort", onAbort);
        if (plan.error !== undefined) reject(plan.error);
        else if (result === null) reject(new Error("An answer without an effect."));
        else if ("error" in result) reject(result.error);
        else resolve(result.value);
      };
      const run = () => {
        try {
          result = { value: effect() };
        } catch (error) {
          result = { error };
        }
      };
      // After an abort the call rejects soon; its effect may still come.
      const onAbort = () => {
        if (settled) return;
        settled = true;
        if (random.chance(0.5)) effecting?.cancel();
        scheduler.after(
          random.between(0, 2),
          () => process.deliver(() => reject(signal?.reason)),
          random.bits() & 0xffff,
        );
      };
      const { effectMs, answerMs } = plan;
      const together = effectMs !== null && answerMs === effectMs;
      const tie = random.bits() & 0xffff;
      const effecting =
        effectMs === null
          ? null
          : scheduler.after(
              effectMs,
              () => {
                run();
                if (together) process.deliver(settle);
              },
              tie,
            );
      if (!together && answerMs !== null) scheduler.after(answerMs, () => process.deliver(settle), tie);
      signal?.addEventListener("abort", onAbort, { once: true });
      if (ambush === null) return;
      if (ambush.act === "kill-after-effect") {
        effecting?.cancel();
        run();
        void this.#die("kill-after-effect");
      } else if (ambush.act === "kill-in-flight") void this.#die("kill-in-flight");
      else if (typeof ambush.act === "object") this.#parts.onPaused(ambush.act.pauseMs);
    });
  }

  #ambush(): Ambush | null {
    const { process } = this.#parts;
    const { ambush } = process;
    if (ambush === null) return null;
    ambush.calls -= 1;
    if (ambush.calls > 0) return null;
    process.ambush = null;
    return ambush;
  }

  #die(kind: "kill-before-effect" | "kill-after-effect" | "kill-in-flight"): Promise<never> {
    this.#parts.count(kind);
    this.#parts.process.kill();
    this.#parts.onKilled();
    return SILENCE;
  }
}
