/**
 * Finds out that sandboxes have died. A provisioner pushes nothing, so its list is read at an interval, and compared
 * with what this home's processes have made.
 *
 * Invariants
 * - A sandbox that is missing from a list is asked for by itself. Only a clear answer is a death; a provisioner that
 *   does not answer says nothing.
 * - A death is told once to every listener. A sandbox that was ended on purpose has no record any more, and is no death.
 */

import type { EngineRef, SandboxId } from "@sandlot/contract";
import type { EngineObject } from "../../backend/backend.ts";
import { type EngineListener, EngineListeners } from "../../backend/engine-listeners.ts";
import type { Liveness, Timer, World } from "../../world/world.ts";

/** Between two reads of the list. Shorter finds a death sooner and asks the provisioner more often. */
const INTERVAL_MS = 2_000;

interface Known {
  readonly ref: EngineRef;
  readonly sandboxId: SandboxId;
}

export interface DeathParts {
  readonly world: World;
  /** What was made and not ended. */
  readonly known: () => Promise<readonly Known[]>;
  readonly list: () => Promise<readonly EngineObject[]>;
  readonly probe: (ref: EngineRef) => Promise<Liveness>;
}

export class Deaths {
  readonly #parts: DeathParts;
  readonly #listeners = new EngineListeners();
  #told = new Set<EngineRef>();
  #timer: Timer | null = null;
  #closed = false;

  constructor(parts: DeathParts) {
    this.#parts = parts;
    this.#schedule();
  }

  listen(listener: EngineListener): () => void {
    return this.#listeners.add(listener);
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#listeners.clear();
  }

  #schedule(): void {
    if (this.#closed) return;
    this.#timer = this.#parts.world.timer(INTERVAL_MS, () => void this.#look(), { background: true });
  }

  async #look(): Promise<void> {
    try {
      // Records are read first: one that was made in between is in the list.
      const known = await this.#parts.known();
      this.#told = new Set(known.map(({ ref }) => ref).filter((ref) => this.#told.has(ref)));
      if (known.length > 0) await this.#compare(known, await this.#parts.list());
    } catch {
      // Unknown is not dead: the next look tells.
    } finally {
      this.#schedule();
    }
  }

  async #compare(known: readonly Known[], objects: readonly EngineObject[]): Promise<void> {
    const living = new Set(objects.filter(({ liveness }) => liveness !== "dead").map(({ ref }) => ref));
    for (const { ref, sandboxId } of known) {
      if (living.has(ref) || this.#told.has(ref)) continue;
      if ((await this.#parts.probe(ref)) !== "dead" || !(await this.#isKnown(ref)) || this.#closed) continue;
      this.#told.add(ref);
      this.#listeners.tell({ type: "died", ref, sandboxId });
    }
  }

  /** It may have been ended on purpose meanwhile. */
  async #isKnown(ref: EngineRef): Promise<boolean> {
    return (await this.#parts.known()).some((one) => one.ref === ref);
  }
}
