/**
 * Holds one output stream of a command back until its followers have it (`output: "hold"`).
 *
 * Invariants
 * - While the hold lasts, no byte is dropped that lies less than `outputRetainedBytes` behind the slowest holding
 *   follower. Sent is not received: the bytes between may be lost with a connection, and the follower requests them
 *   again.
 * - Without a follower nothing is dropped for `patienceMs` after the ring is full. Then the ring drops and counts,
 *   until a follower comes.
 * - The hold ends with the command. It never delays a kill: it only decides whether the daemon reads on.
 */

import { SANDBOX_LIMITS } from "@sandlot/contract";
import { type Timer, timer } from "../clock.ts";
import type { OutputRing } from "./output-ring.ts";

/** The most that the daemon reads from a stream at once. */
export const READ_MAX_BYTES = 64 * 1024;

/** A follower's place in the stream: everything before it was sent. */
export interface HoldingCursor {
  readonly offset: number;
}

export class OutputHold {
  readonly #ring: OutputRing;
  readonly #patienceMs: number;
  readonly #followers = new Set<HoldingCursor>();
  /** Bytes before this offset may be dropped. */
  #floor = 0;
  #patience: Timer | null = null;
  #isSuspended = false;
  #hasEnded = false;
  #isWaiting = false;
  #resume: () => void = () => {};

  constructor(ring: OutputRing, patienceMs: number) {
    this.#ring = ring;
    this.#patienceMs = patienceMs;
  }

  /** Registers the function that resumes reading once there is room. */
  onRoom(resume: () => void): void {
    this.#resume = resume;
  }

  /** Whether one more read drops no byte that a follower may still want. After `false`, `onRoom` is called. */
  hasRoom(): boolean {
    this.#isWaiting = !this.#fits();
    if (this.#isWaiting && this.#followers.size === 0) this.#waitForFollower();
    return !this.#isWaiting;
  }

  /** Returns a function that detaches it. */
  attach(cursor: HoldingCursor): () => void {
    this.#followers.add(cursor);
    this.#isSuspended = false;
    this.#patience?.cancel();
    this.#patience = null;
    this.moved();
    return () => {
      this.#followers.delete(cursor);
      this.moved();
    };
  }

  /** A follower has advanced, attached or detached. */
  moved(): void {
    if (this.#followers.size > 0) {
      let slowest = Infinity;
      for (const { offset } of this.#followers) slowest = Math.min(slowest, offset);
      this.#floor = slowest - SANDBOX_LIMITS.outputRetainedBytes;
    }
    if (this.#isWaiting && this.hasRoom()) this.#resume();
  }

  /** The command has ended, and left at most `restMaxBytes` in its pipe. */
  end(restMaxBytes: number): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#ring.widen(restMaxBytes);
    this.#patience?.cancel();
    if (!this.#isWaiting) return;
    this.#isWaiting = false;
    this.#resume();
  }

  #fits(): boolean {
    if (this.#hasEnded || this.#isSuspended) return true;
    const { startOffset, endOffset, maxBytes } = this.#ring;
    return endOffset - Math.max(startOffset, this.#floor) + READ_MAX_BYTES <= maxBytes;
  }

  #waitForFollower(): void {
    this.#patience ??= timer(this.#patienceMs, () => {
      this.#patience = null;
      this.#isSuspended = true;
      this.moved();
    });
  }
}
