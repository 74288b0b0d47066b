/**
 * The sandbox as a lease shows it: every use asks again whether the lease and the generation still stand.
 *
 *   released            → lease_released
 *   lease moved on      → stale_generation      (take `lease.sandbox` again)
 *   slot lost           → restart, then the use runs in the next generation; or sandbox_lost without autoRestart
 *   otherwise           → the backend's sandbox, whose daemon checks generation and token once more
 */

import type { Duplex } from "node:stream";
import { isSandlotError, type LossReason, type Sandbox, SandlotError } from "@sandlot/contract";
import { CheckedSandbox, type Passage } from "./checked-sandbox.ts";
import type { LeaseHandle } from "./lease.ts";
import type { Slot } from "./slot.ts";

export class LeasedSandbox extends CheckedSandbox {
  readonly slot: Slot;
  readonly #lease: LeaseHandle;

  constructor(lease: LeaseHandle, slot: Slot) {
    super(slot.sandboxId, slot.generation);
    this.slot = slot;
    this.#lease = lease;
  }

  /** A connection to what listens on a port inside. */
  connect(port: number, signal?: AbortSignal): Promise<Duplex> {
    return this.#useSlot(({ attachment }) => {
      if (attachment.connect !== undefined) return attachment.connect(port, signal);
      const { backend } = this.slot.record;
      throw new SandlotError("capability_missing", {
        backend,
        capability: "preview",
        neededBy: "connecting to a port",
      });
    });
  }

  protected override readonly passage: Passage = {
    use: (use) => this.#useSlot(({ sandbox }) => use(sandbox)),
    stream: (open) => this.#stream(open),
    check: () => this.#check(),
  };

  #useSlot<T>(use: (slot: Slot) => Promise<T>): Promise<T> {
    return this.#lease.used(async () => {
      const slot = await this.#presentSlot();
      return this.#judged(slot, () => use(slot));
    });
  }

  async *#stream<T>(open: (sandbox: Sandbox) => AsyncIterable<T>): AsyncGenerator<T> {
    const lease = this.#lease;
    const slot = await lease.used(() => this.#presentSlot());
    const pieces = open(slot.sandbox)[Symbol.asyncIterator]();
    try {
      for (;;) {
        const next = await lease.used(() => this.#judged(slot, () => pieces.next()));
        if (next.done === true) return;
        if (lease.isReleased()) throw released(lease);
        yield next.value;
      }
    } finally {
      await pieces.return?.();
    }
  }

  async #judged<T>(slot: Slot, use: () => Promise<T>): Promise<T> {
    try {
      return await use();
    } catch (error) {
      // What was running is lost, even where the next use will find a new sandbox.
      this.#lease.home.suspect(slot, error);
      const loss = isSandlotError(error, "sandbox_unreachable") ? slot.loss : null;
      throw loss === null ? error : sandboxLost(slot, await loss);
    }
  }

  async #presentSlot(): Promise<Slot> {
    this.#check();
    let slot = this.slot.isLost() ? await this.#lease.home.restart(this.#lease) : this.slot;
    // It may have been lost again between being found and this turn.
    while (!slot.isOpen()) slot = await this.#lease.home.restart(this.#lease);
    return slot;
  }

  #check(): void {
    const lease = this.#lease;
    if (lease.isReleased()) throw released(lease);
    if (lease.slot !== this.slot) throw staleGeneration(this.slot, lease.slot.generation);
  }
}

/** A view for `fleet.get`: without a lease nothing is restarted. */
export class HeldSandbox extends CheckedSandbox {
  readonly #slot: Slot;
  readonly #current: () => Slot | undefined;

  /** `current` finds the thread's present slot, to tell a dead sandbox from a superseded one. */
  constructor(slot: Slot, current: () => Slot | undefined) {
    super(slot.sandboxId, slot.generation);
    this.#slot = slot;
    this.#current = current;
  }

  protected override get passage(): Passage {
    const present = () => this.#present();
    return {
      use: async (use) => use(await present()),
      async *stream(open) {
        yield* open(await present());
      },
      check: () => undefined,
    };
  }

  async #present(): Promise<Sandbox> {
    const slot = this.#slot;
    if (slot.isOpen()) return slot.sandbox;
    const successor = this.#current();
    if (successor !== undefined || slot.loss === null) throw staleGeneration(slot, successor?.generation ?? null);
    throw sandboxLost(slot, await slot.loss);
  }
}

function released({ id }: LeaseHandle): SandlotError {
  return new SandlotError("lease_released", { leaseId: id });
}

export function sandboxLost(slot: Slot, reason: LossReason): SandlotError {
  const { sandboxId, generation } = slot;
  return new SandlotError("sandbox_lost", { sandboxId, generation, reason });
}

function staleGeneration(slot: Slot, current: number | null): SandlotError {
  const { sandboxId, generation } = slot;
  return new SandlotError("stale_generation", { sandboxId, generation, current });
}
