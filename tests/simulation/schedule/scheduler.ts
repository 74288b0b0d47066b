/**
 * Virtual time. Events run one at a time in the order of their moment. Between two events every microtask has run, so
 * the code under test is always at rest when the next event comes. Nothing here waits for real time.
 *
 * Chance decides the order of simultaneous events when they are scheduled (`tie`). Simultaneous timers keep the order
 * in which they were set, as Node's do.
 */

export interface Scheduled {
  readonly at: number;
  cancel(): void;
}

class Entry implements Scheduled {
  readonly at: number;
  readonly tie: number;
  readonly order: number;
  run: (() => void) | null;

  constructor(at: number, tie: number, order: number, run: () => void) {
    this.at = at;
    this.tie = tie;
    this.order = order;
    this.run = run;
  }

  cancel(): void {
    this.run = null;
  }
}

/** The tie of timers: in the middle, so that chance puts other events of the moment before or after all of them. */
const TIMER_TIE = 0x8000;
/** Immediates queued per turn of the real event loop; Node runs all microtasks between two of them. */
const EVENTS_PER_TURN = 64;

export class Scheduler {
  /** Milliseconds since the run began. */
  now = 0;
  events = 0;
  /** No run needs nearly as many; once they are spent, time passes without events. */
  readonly #eventsMax: number;
  readonly #heap: Entry[] = [];
  readonly #onThrow: (error: unknown) => void;
  readonly #onTurn: () => void;
  #order = 0;

  /** `onTurn` is called every few events: as long as the calls come, no code under test spins. */
  constructor(onThrow: (error: unknown) => void, onTurn: () => void = () => {}, eventsMax = 400_000) {
    this.#onThrow = onThrow;
    this.#onTurn = onTurn;
    this.#eventsMax = eventsMax;
  }

  get isSpent(): boolean {
    return this.events >= this.#eventsMax;
  }

  after(delayMs: number, run: () => void, tie: number = TIMER_TIE): Scheduled {
    const delay = delayMs > 0 ? Math.ceil(delayMs) : 0;
    const entry = new Entry(this.now + delay, tie, this.#order++, run);
    this.#push(entry);
    return entry;
  }

  /** Runs events until `done` says so, `until` is reached, or none is left. */
  run(until: number, done: () => boolean = () => false): Promise<void> {
    return new Promise((resolve) => {
      let finished = false;
      const step = () => {
        if (finished) return;
        const entry = done() || this.isSpent ? undefined : this.#next(until);
        if (entry === undefined) {
          finished = true;
          if (!done() && until !== Number.POSITIVE_INFINITY) this.now = Math.max(this.now, until);
          resolve();
          return;
        }
        this.#fire(entry);
      };
      const turn = () => {
        if (finished) return;
        this.#onTurn();
        for (let count = 0; count < EVENTS_PER_TURN; count += 1) setImmediate(step);
        setImmediate(turn);
      };
      turn();
    });
  }

  #fire(entry: Entry): void {
    this.now = entry.at;
    this.events += 1;
    try {
      entry.run?.();
    } catch (error) {
      this.#onThrow(error);
    }
  }

  #next(until: number): Entry | undefined {
    for (;;) {
      const first = this.#heap[0];
      if (first === undefined || first.at > until) return undefined;
      this.#pop();
      if (first.run !== null) return first;
    }
  }

  #push(entry: Entry): void {
    const heap = this.#heap;
    let index = heap.length;
    heap.push(entry);
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const above = heap[parent] as Entry;
      if (!before(entry, above)) break;
      heap[index] = above;
      index = parent;
    }
    heap[index] = entry;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop() as Entry;
    const length = heap.length;
    if (length === 0) return;
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= length) break;
      if (child + 1 < length && before(heap[child + 1] as Entry, heap[child] as Entry)) child += 1;
      const below = heap[child] as Entry;
      if (!before(below, last)) break;
      heap[index] = below;
      index = child;
    }
    heap[index] = last;
  }
}

function before(a: Entry, b: Entry): boolean {
  if (a.at !== b.at) return a.at < b.at;
  if (a.tie !== b.tie) return a.tie < b.tie;
  return a.order < b.order;
}
