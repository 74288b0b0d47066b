/**
 * Events: a fleet tells what has happened. Listeners are called at once and cannot disturb the fleet; iterators have
 * a bounded buffer and lose the oldest events when nobody reads.
 */

import type { FleetEvent, FleetEventBody, FleetEventType, InstanceId, SandboxId } from "@sandlot/contract";
import type { FleetEvents } from "../fleet.ts";
import type { World } from "../world/world.ts";

/** Events kept for `explain`: enough for the last minutes of a busy fleet, small enough to forget about. */
const HISTORY_MAX = 2_000;
/** Events kept for an iterator that is slow: older ones are dropped, because the fleet never waits for a reader. */
const BACKLOG_MAX = 10_000;

type Listener = (event: FleetEvent) => void;

export class EventBus implements FleetEvents {
  readonly #world: World;
  readonly #instance: InstanceId;
  readonly #listeners = new Map<Listener, ReadonlySet<FleetEventType> | null>();
  readonly #history: FleetEvent[] = [];
  readonly #ends = new Set<() => void>();
  #oldest = 0;

  constructor(world: World, instance: InstanceId) {
    this.#world = world;
    this.#instance = instance;
  }

  /** Whether anybody listens to this: the hot path asks before it makes an event nobody would see. */
  listensTo(type: FleetEventType): boolean {
    for (const types of this.#listeners.values()) if (types === null || types.has(type)) return true;
    return false;
  }

  emit(body: FleetEventBody): void {
    const event: FleetEvent = { ...body, at: this.#world.wallMs(), instance: this.#instance };
    this.#remember(event);
    for (const [listener, types] of this.#listeners) {
      if (types !== null && !types.has(event.type)) continue;
      try {
        listener(event);
      } catch (error) {
        // The fleet must not fail because a listener does; the process hears of it in the usual way.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }

  on(listener: Listener, ...types: FleetEventType[]): () => void {
    this.#listeners.set(listener, types.length === 0 ? null : new Set(types));
    return () => this.#listeners.delete(listener);
  }

  /** What was lately told about one sandbox, oldest first. */
  historyOf(sandboxId: SandboxId): readonly FleetEvent[] {
    const inOrder = [...this.#history.slice(this.#oldest), ...this.#history.slice(0, this.#oldest)];
    return inOrder.filter((event) => "sandboxId" in event && event.sandboxId === sandboxId);
  }

  /** Ends every iterator. Listeners may still be called for what happens while closing. */
  close(): void {
    for (const end of this.#ends) end();
  }

  async *[Symbol.asyncIterator](): AsyncIterator<FleetEvent> {
    const backlog: FleetEvent[] = [];
    let ended = false;
    let wake: () => void = () => undefined;
    const end = () => {
      ended = true;
      wake();
    };
    const stop = this.on((event) => {
      if (backlog.push(event) > BACKLOG_MAX) backlog.shift();
      wake();
    });
    this.#ends.add(end);
    try {
      while (true) {
        const event = backlog.shift();
        if (event !== undefined) yield event;
        else if (ended) return;
        else await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      stop();
      this.#ends.delete(end);
    }
  }

  #remember(event: FleetEvent): void {
    if (this.#history.length < HISTORY_MAX) this.#history.push(event);
    else {
      this.#history[this.#oldest] = event;
      this.#oldest = (this.#oldest + 1) % HISTORY_MAX;
    }
  }
}

/** The text of an unknown error, for an event or another error's details. */
export function problemOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Waits for something whose failure must not reach the caller. It is told, not swallowed. */
export async function quietly<T>(bus: EventBus, what: string, work: () => Promise<T>): Promise<T | null> {
  try {
    return await work();
  } catch (error) {
    bus.emit({ type: "close-failed", what, problem: problemOf(error) });
    return null;
  }
}
