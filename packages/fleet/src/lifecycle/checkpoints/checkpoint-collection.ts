/**
 * Collecting what no checkpoint needs any more: by one session of each engine, because all of them see the same store of
 * checkpoints. Another one takes its turn when it has gone.
 */

import type { Backend } from "../../backend/backend.ts";
import type { EventBus } from "../../observe/event-bus.ts";
import type { Store } from "../../store/store.ts";
import type { Membership } from "../session/membership.ts";

interface CheckpointCollectionParts {
  readonly store: Store;
  readonly backend: Backend;
  readonly bus: EventBus;
  readonly membership: Membership;
  readonly ending: AbortSignal;
}

export class CheckpointCollection {
  readonly #parts: CheckpointCollectionParts;

  constructor(parts: CheckpointCollectionParts) {
    this.#parts = parts;
  }

  async run(): Promise<void> {
    const { store, backend, bus, membership, ending } = this.#parts;
    if (ending.aborted) return;
    const here = (await store.sessions()).filter(({ engines }) => engines.includes(backend.engineId));
    const [first] = here.map(({ instance }) => instance).sort();
    if (first !== membership.instance) return;
    const onProblem = (problem: string) => bus.emit({ type: "housekeeping-failed", task: "collect", problem });
    try {
      await backend.checkpoints?.collect(onProblem, ending);
    } catch (error) {
      // A closing fleet stops it in the middle; the next one goes on.
      if (!ending.aborted) throw error;
    }
  }
}
