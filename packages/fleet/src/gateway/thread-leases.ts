/**
 * The leases that requests of this gateway hold now, and the ones that it keeps for a moment after a request.
 *
 * A caller without a lease of its own sends one request after the other. Keeping the lease in between spares each of them a hold in the
 * store, a connection to the sandbox, and giving both back.
 *
 * Invariants
 * - At most one lease of a thread is kept, and for at most `keepLeasesMs` after the thread's last request.
 * - Kept leases end early: all of them when a caller waits for room or the gateway stops; a thread's own when the thread is to be stopped.
 */

import type { Fleet, Lease } from "../fleet.ts";
import type { Timer, World } from "../world/world.ts";
import type { ThreadKey } from "./thread-key.ts";

interface Kept {
  readonly lease: Lease;
  timer: Timer;
  /** On the monotonic clock. */
  until: number;
}

export class ThreadLeases {
  readonly #world: World;
  readonly #keepMs: number;
  readonly #inUse = new Map<Lease, string>();
  readonly #kept = new Map<string, Kept>();
  /** Threads that are being stopped, with how many calls do so. */
  readonly #stopping = new Map<string, number>();
  readonly #unsubscribe: () => void;
  #closed = false;
  #wakes: (() => void)[] = [];

  constructor(events: Fleet["events"], world: World, keepMs: number) {
    this.#world = world;
    this.#keepMs = keepMs;
    this.#unsubscribe = events.on(() => void this.releaseKept(), "acquire-queued");
  }

  /** Counts a lease until it is given back with `release`. */
  began(key: ThreadKey, lease: Lease): void {
    this.#inUse.set(lease, textOf(key));
  }

  /** The request is over: its lease is kept for the next one, or released. Giving it back again is fine. */
  async release(lease: Lease): Promise<void> {
    const key = this.#inUse.get(lease);
    if (key === undefined) return;
    this.#inUse.delete(lease);
    try {
      await this.#keep(key, lease)?.release();
    } finally {
      if (this.#inUse.size === 0) for (const wake of this.#wakes.splice(0)) wake();
    }
  }

  /** Runs `stop` while nothing of the thread is kept here. */
  async withoutKept<T>(key: ThreadKey, stop: () => Promise<T>): Promise<T> {
    const text = textOf(key);
    this.#stopping.set(text, (this.#stopping.get(text) ?? 0) + 1);
    try {
      await this.#releaseKept(text);
      return await stop();
    } finally {
      const others = (this.#stopping.get(text) ?? 1) - 1;
      if (others > 0) this.#stopping.set(text, others);
      else this.#stopping.delete(text);
    }
  }

  /** Releases what is kept, of every thread or of one. Answers whether there was anything. */
  async releaseKept(key?: ThreadKey): Promise<boolean> {
    const texts = key === undefined ? [...this.#kept.keys()] : [textOf(key)];
    const released = await Promise.all(texts.map((text) => this.#releaseKept(text)));
    return released.includes(true);
  }

  /** Keeps nothing from here on. Resolves when no request holds a lease any more. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#unsubscribe();
    await this.releaseKept();
    if (this.#inUse.size > 0) await new Promise<void>((resolve) => this.#wakes.push(resolve));
  }

  /** Answers with the lease that is not needed to keep the thread: this one, an older one, or none. */
  #keep(key: string, lease: Lease): Lease | null {
    if (this.#keepMs === 0 || this.#closed || this.#stopping.has(key)) return lease;
    const until = this.#world.monotonicMs() + this.#keepMs;
    const kept = this.#kept.get(key);
    // Of two generations the later one lives: a request that lost its sandbox may end after requests on the next one.
    if (kept !== undefined && kept.lease.generation >= lease.generation) {
      kept.until = until;
      return lease;
    }
    kept?.timer.cancel();
    this.#kept.set(key, { lease, until, timer: this.#timer(key, this.#keepMs) });
    return kept?.lease ?? null;
  }

  #timer(key: string, delayMs: number): Timer {
    return this.#world.timer(delayMs, () => this.#due(key), { background: true });
  }

  /** A request that ended meanwhile has moved the end. */
  #due(key: string): void {
    const kept = this.#kept.get(key);
    if (kept === undefined) return;
    const leftMs = kept.until - this.#world.monotonicMs();
    if (leftMs > 0) kept.timer = this.#timer(key, leftMs);
    else void this.#releaseKept(key);
  }

  async #releaseKept(key: string): Promise<boolean> {
    const kept = this.#kept.get(key);
    if (kept === undefined) return false;
    this.#kept.delete(key);
    kept.timer.cancel();
    await kept.lease.release();
    return true;
  }
}

/** The separator cannot occur in an id. */
function textOf({ user, thread }: ThreadKey): string {
  return `${user}\n${thread}`;
}
