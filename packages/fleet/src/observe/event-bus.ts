/**
 * The fleet's events. Listeners are called at once and cannot disturb the fleet; iterators have a bounded buffer and
 * drop the oldest events when they are not read.
 */

import type { FleetEvent, FleetEventBody, FleetEventType, InstanceId, SandboxId } from "@sandlot/contract";
import type { FleetEvents } from "../fleet.ts";
import type { World } from "../world/world.ts";

/** Events kept for `explain`: the last minutes of a busy fleet, with little memory. */
const HISTORY_MAX = 2_000;
/** Events kept for a slow iterator: older ones are dropped, because the fleet never waits for a reader. */
const BACKLOG_MAX = 10_000;

type Listener = (event: FleetEvent) => void;

export class EventBus implements FleetEvents {
  readonly #world: World;
  readonly #instance: InstanceId;
  readonly #engine: { readonly engine?: string };
  readonly #listeners = new Map<Listener, ReadonlySet<FleetEventType> | null>();
  readonly #history: FleetEvent[] = [];
  readonly #ends = new Set<() => void>();
  #oldest = 0;

  /** `engine` is named in events of sandboxes: an instance has those of its own engine. */
  constructor(world: World, instance: InstanceId, engine?: string) {
    this.#world = world;
    this.#instance = instance;
    this.#engine = engine === undefined ? {} : { engine };
  }

  /** Whether this type has a listener: the hot path checks before it creates an event. */
  listensTo(type: FleetEventType): boolean {
    for (const types of this.#listeners.values()) if (types === null || types.has(type)) return true;
    return false;
  }

  emit(body: FleetEventBody): void {
    const engine = "sandboxId" in body ? this.#engine : {};
    const event: FleetEvent = { ...body, at: this.#world.wallMs(), instance: this.#instance, ...engine };
    this.#remember(event);
    for (const [listener, types] of this.#listeners) {
      if (types !== null && !types.has(event.type)) continue;
      try {
        listener(event);
      } catch (error) {
        // A failing listener must not fail the fleet; the process gets an uncaught exception.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }

  report(task: string, problem: string): void {
    this.emit({ type: "housekeeping-failed", task, problem });
  }

  on(listener: Listener, ...types: FleetEventType[]): () => void {
    this.#listeners.set(listener, types.length === 0 ? null : new Set(types));
    return () => this.#listeners.delete(listener);
  }

  /** The recent events of one sandbox, oldest first. */
  historyOf(sandboxId: SandboxId): readonly FleetEvent[] {
    const inOrder = [...this.#history.slice(this.#oldest), ...this.#history.slice(0, this.#oldest)];
    return inOrder.filter((event) => "sandboxId" in event && event.sandboxId === sandboxId);
  }

  /** Ends every iterator. Listeners may still be called for events while closing. */
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

/** Runs work whose failure must not reach the caller. The failure is reported as an event, not swallowed. */
export async function reportFailure<T>(bus: EventBus, what: string, work: () => Promise<T>): Promise<T | null> {
  try {
    return await work();
  } catch (error) {
    bus.emit({ type: "close-failed", what, problem: problemOf(error) });
    return null;
  }
}
