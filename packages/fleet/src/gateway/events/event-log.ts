/**
 * Recent events, numbered, so that a client can resume after a lost connection: those of this gateway's own instance,
 * and, while a reader is there, those that other gateways of the store have sent on (`peer-events.ts`).
 *
 * Invariants
 * - An id is `<life>-<number>`. Numbers of another run, or of another gateway, are not comparable: a reader that resumes
 *   with one of those learns that it missed something.
 * - Nothing that may be missing goes unmentioned: an overrun log, and a time in which events of other gateways were not
 *   received, are gaps.
 * - The log is bounded in count, and the part from other gateways also in bytes.
 */

import type { FleetEvent } from "@sandlot/contract";
import type { FleetEvents } from "../../fleet.ts";
import type { World } from "../../world/world.ts";

/** Enough for some minutes of a busy fleet. */
const HELD_MAX = 5_000;
/** Of events from other gateways. */
const FORWARDED_MAX_BYTES = 16 * 1024 * 1024;

export type LogItem =
  | { readonly kind: "event"; readonly id: string; readonly event: VisibleEvent; readonly json: string }
  /** Some events were missed. */
  | { readonly kind: "gap"; readonly id: string | null }
  /** From here on, events of these instances do not come. */
  | { readonly kind: "partial"; readonly id: string; readonly instances: readonly string[] };

type VisibleEvent = FleetEvent | ForwardedEvent;

/** An event of another gateway, maybe of another version. */
export interface ForwardedEvent {
  readonly type: string;
  readonly at: number;
  readonly instance: string;
}

type Held =
  | { readonly kind: "own"; readonly event: FleetEvent; json: string | null }
  | { readonly kind: "forwarded"; readonly event: ForwardedEvent; readonly json: string }
  | { readonly kind: "gap" }
  | { readonly kind: "partial"; readonly instances: readonly string[] };

export interface ReadOptions {
  /** Only what this gateway's own instance emitted. */
  readonly own: boolean;
}

export class EventLog {
  readonly #life: string;
  readonly #held: Held[] = [];
  readonly #stop: () => void;
  /** The number of the oldest that is held. */
  #first = 1;
  #forwardedBytes = 0;
  readonly #wakes = new Set<() => void>();

  constructor(events: FleetEvents, world: World) {
    this.#life = world.randomHex(4);
    this.#stop = events.on((event) => this.#add({ kind: "own", event, json: null }));
  }

  forwarded(event: ForwardedEvent, json: string): void {
    this.#add({ kind: "forwarded", event, json });
  }

  /** Events of other gateways may have been missed until now. */
  gap(): void {
    this.#add({ kind: "gap" });
  }

  partial(instances: readonly string[]): void {
    this.#add({ kind: "partial", instances });
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

  /** Everything from a number on, without end. A reader that falls too far behind gets a gap for what it missed. */
  async *from(start: number, { own }: ReadOptions, signal: AbortSignal): AsyncGenerator<LogItem> {
    let next = start;
    while (!signal.aborted) {
      if (next < this.#first) {
        next = this.#first;
        yield { kind: "gap", id: null };
      }
      const held = this.#held[next - this.#first];
      if (held === undefined) await this.#more(signal);
      else {
        const id = `${this.#life}-${next}`;
        next += 1;
        if (held.kind === "own") {
          held.json ??= JSON.stringify(held.event);
          yield { kind: "event", id, event: held.event, json: held.json };
        } else if (own) continue;
        else if (held.kind === "forwarded") yield { kind: "event", id, event: held.event, json: held.json };
        else if (held.kind === "gap") yield { kind: "gap", id };
        else yield { kind: "partial", id, instances: held.instances };
      }
    }
  }

  close(): void {
    this.#stop();
  }

  #add(held: Held): void {
    this.#held.push(held);
    if (held.kind === "forwarded") this.#forwardedBytes += held.json.length;
    while (this.#held.length > HELD_MAX || this.#forwardedBytes > FORWARDED_MAX_BYTES) {
      const oldest = this.#held.shift();
      if (oldest?.kind === "forwarded") this.#forwardedBytes -= oldest.json.length;
      this.#first += 1;
    }
    for (const wake of this.#wakes) wake();
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
  "checkpoint-taken",
  "checkpoint-failed",
  "checkpoint-progress",
  "workspace-restored",
  "workspace-restore-refused",
  "egress-refused",
  "limit-hit",
]);

/** Whether a reader may see it; `user` is `null` for an operator, who sees everything. */
export function isVisibleTo(user: string | null, event: { readonly type: string }): boolean {
  if (user === null) return true;
  return "user" in event && event.user === user && USER_EVENTS.has(event.type as FleetEvent["type"]);
}
