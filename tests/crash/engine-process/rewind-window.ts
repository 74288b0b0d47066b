/**
 * What a store that may lose its last commits does not promise, and nothing more (docs/decisions/store.md).
 *
 *   failover ────── window ──────▶ new epoch ──── an instance that had no beat since ────▶ promised again
 *
 * - Before the new epoch: two sandboxes of a thread, and acts on an intent whose record was lost. What is suspected then
 *   is judged when the failover is over: without a new epoch nothing was lost, and it is a violation.
 * - After it: two sandboxes that both began before it, and acts of an instance that cannot know of it yet. An instance
 *   asks the store after half of a session's lifetime at the latest.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { Loss } from "./lost-removals.ts";

export type SuspectKind = "two sandboxes" | "made without a record" | "destroyed without a record";

export interface Suspect {
  readonly kind: SuspectKind;
  readonly what: string;
  /** When the instance acted. */
  readonly at: number;
  /** When the later one of two sandboxes began; `null`: it is about one. */
  readonly begunAt: number | null;
}

export interface RewindWindowParts {
  readonly now: () => number;
  /** The store's present epoch. Rejects while the store does not answer. */
  readonly epoch: () => Promise<string>;
  /** The sandboxes that the store has a record of. Rejects like `epoch`. */
  readonly recorded: () => Promise<readonly string[]>;
  readonly sessionLifetimeMs: number;
  readonly violated: (what: string) => void;
  readonly excused: (kind: string, what: string) => void;
}

const LOOK_MS = 50;

export class RewindWindow {
  readonly #parts: RewindWindowParts;
  #epochBefore: string | null = null;
  #newEpochAt: number | null = null;
  #suspects: Suspect[] = [];
  #opened: Pick<Loss, "openedAt" | "recorded"> | null = null;
  /** Every failover after which a new epoch began. */
  readonly losses: Loss[] = [];

  constructor(parts: RewindWindowParts) {
    this.#parts = parts;
  }

  /** Before a failover. */
  async open(): Promise<void> {
    const openedAt = this.#parts.now();
    this.#epochBefore = await this.#parts.epoch();
    this.#opened = { openedAt, recorded: new Set(await this.#parts.recorded()) };
    this.#newEpochAt = null;
    void this.#look(this.#epochBefore);
  }

  /** The failover is over, and every instance works again. */
  async close(): Promise<void> {
    // The last look may be older than the epoch.
    if (this.#epochBefore !== null) this.#seen(await this.#parts.epoch(), this.#epochBefore);
    this.#epochBefore = null;
    for (const suspect of this.#suspects.splice(0)) this.#judge(suspect);
    this.#newEpochAt = null;
  }

  suspect(suspect: Suspect): void {
    if (this.#epochBefore === null) this.#parts.violated(suspect.what);
    else this.#suspects.push(suspect);
  }

  #judge({ kind, what, at, begunAt }: Suspect): void {
    const { violated, excused, sessionLifetimeMs } = this.#parts;
    const newEpochAt = this.#newEpochAt ?? Number.NEGATIVE_INFINITY;
    const couldNotKnow = at - newEpochAt <= sessionLifetimeMs / 2;
    if (at <= newEpochAt) excused(`${kind}, in the window`, what);
    else if (begunAt === null ? couldNotKnow : begunAt <= newEpochAt)
      excused(`${kind}, ${begunAt === null ? "before a beat" : "begun in the window"}`, what);
    else violated(what);
  }

  async #look(before: string): Promise<void> {
    while (this.#epochBefore === before) {
      const epoch = await this.#parts.epoch().catch(() => before);
      if (this.#epochBefore === before) this.#seen(epoch, before);
      await sleep(LOOK_MS);
    }
  }

  #seen(epoch: string, before: string): void {
    if (epoch === before || this.#newEpochAt !== null) return;
    this.#newEpochAt = this.#parts.now();
    if (this.#opened !== null) this.losses.push({ ...this.#opened, newEpochAt: this.#newEpochAt });
  }
}
