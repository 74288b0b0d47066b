/**
 * The steps of a store on the network, as spans and for metrics.
 *
 * - A step is a span only inside another one: beats and housekeeping have none, and would fill a collector.
 * - A scan that several steps share is a step of its own, of the first of them.
 * - Attributes name the step and its cost. Rows, ids and tokens are not in them.
 */

import { isSandlotError } from "@sandlot/contract";
import type { StepCost, StepObserver } from "../store/step-observer.ts";
import type { Store } from "../store/store.ts";
import type { World } from "../world/world.ts";
import { annotate, isInSpan, traced } from "./tracing.ts";

export interface StepReport extends StepCost {
  readonly operation: string;
  readonly durationMs: number;
  /** `null`: the step was answered. */
  readonly errorCode: string | null;
}

export class StoreSteps implements StepObserver {
  readonly #type: string;
  readonly #world: World;
  readonly #listeners = new Set<(report: StepReport) => void>();

  /** Observes `store`, if it is on the network. */
  constructor(store: Pick<Store, "kind" | "observeSteps">, world: World) {
    this.#type = store.kind;
    this.#world = world;
    store.observeSteps?.(this);
  }

  /** Calls `listener` after each step. Returns a function that ends it. */
  on(listener: (report: StepReport) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  around<T>(operation: string, cost: Readonly<StepCost>, work: () => Promise<T>): Promise<T> {
    if (!isInSpan()) return this.#timed(operation, cost, work);
    const attributes = { "sandlot.store.type": this.#type, "sandlot.store.step": operation };
    return traced("sandlot.store", attributes, async () => {
      try {
        return await this.#timed(operation, cost, work);
      } finally {
        const { calls, conflicts, retries } = cost;
        annotate({
          "sandlot.store.calls": calls,
          "sandlot.store.conflicts": conflicts,
          "sandlot.store.retries": retries,
        });
      }
    });
  }

  async #timed<T>(operation: string, cost: Readonly<StepCost>, work: () => Promise<T>): Promise<T> {
    const begunAt = this.#world.monotonicMs();
    let errorCode: string | null = null;
    try {
      return await work();
    } catch (error) {
      errorCode = isSandlotError(error) ? error.code : "internal";
      throw error;
    } finally {
      const report = { ...cost, operation, durationMs: this.#world.monotonicMs() - begunAt, errorCode };
      for (const listener of this.#listeners) listener(report);
    }
  }
}
