/**
 * Recent events of the fleet, numbered, so that a client can resume after a lost connection. An id is
 * `<life>-<number>`: numbers of another run of the gateway are not comparable.
 */

import type { FleetEvent } from "@sandlot/contract";
import type { FleetEvents } from "../fleet.ts";
import type { World } from "../world/world.ts";

/** Enough for some minutes of a busy fleet. */
const HELD_MAX = 5_000;

export interface NumberedEvent {
  readonly id: string;
  readonly event: FleetEvent;
  /** Encoded once for all readers. */
  readonly json: string;
}

interface Held {
  readonly event: FleetEvent;
  json: string | null;
}

export class EventLog {
  readonly #life: string;
  readonly #held: Held[] = [];
  readonly #stop: () => void;
  /** The number of the oldest that is held. */
  #first = 1;
  readonly #wakes = new Set<() => void>();

  constructor(events: FleetEvents, world: World) {
    this.#life = world.randomHex(4);
    this.#stop = events.on((event) => {
      this.#held.push({ event, json: null });
      if (this.#held.length > HELD_MAX) {
        this.#held.shift();
        this.#first += 1;
      }
      for (const wake of this.#wakes) wake();
    });
  }

  /** Where a reader resumes: after the event with this id, or from now on. `missed`: some are no longer kept. */
  position(lastId: string | undefined): { readonly next: number; readonly missed: boolean } {
    const end = this.#first + this.#held.length;
    if (lastId === undefined) return { next: end, missed: false };
    const [life, text] = lastId.split("-");
    const number = Number(text);
    if (life !== this.#life || !Number.isSafeInteger(number) || number >= end)
      return { next: this.#first, missed: true };
    return number + 1 < this.#first ? { next: this.#first, missed: true } : { next: number + 1, missed: false };
  }

  /** Everything from a number on, without end. A reader that falls too far behind gets `null` for what it missed. */
  async *from(start: number, signal: AbortSignal): AsyncGenerator<NumberedEvent | null> {
    let next = start;
    while (!signal.aborted) {
      if (next < this.#first) {
        next = this.#first;
        yield null;
      }
      const held = this.#held[next - this.#first];
      if (held === undefined) await this.#more(signal);
      else {
        held.json ??= JSON.stringify(held.event);
        yield { id: `${this.#life}-${next}`, event: held.event, json: held.json };
        next += 1;
      }
    }
  }

  close(): void {
    this.#stop();
  }

  #more(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        this.#wakes.delete(wake);
        signal.removeEventListener("abort", wake);
        resolve();
      };
      this.#wakes.add(wake);
      signal.addEventListener("abort", wake, { once: true });
      if (signal.aborted) wake();
    });
  }
}

/** Events that a user sees about own sandboxes. Other events concern the host or other users. */
const USER_EVENTS: ReadonlySet<FleetEvent["type"]> = new Set([
  "sandbox-created",
  "sandbox-bound",
  "sandbox-attached",
  "sandbox-parked",
  "sandbox-lost",
  "sandbox-stopping",
  "sandbox-stopped",
  "sandbox-adopted",
  "lease-acquired",
  "lease-released",
  "lease-lost",
  "egress-refused",
  "limit-hit",
]);

/** Whether a reader may see it; `user` is `null` for an operator, who sees everything. */
export function isVisibleTo(user: string | null, event: { readonly type: string }): boolean {
  if (user === null) return true;
  return "user" in event && event.user === user && USER_EVENTS.has(event.type as FleetEvent["type"]);
}
