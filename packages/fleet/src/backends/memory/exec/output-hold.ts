/**
 * Makes a command of the `memory` backend wait for its followers (`output: "hold"`), as the daemon does for real ones.
 *
 * Invariants
 * - While the hold lasts, no byte is dropped that the slowest holding follower has not taken. A follower requests what
 *   comes next, so it has all bytes before that offset.
 * - Without a follower a full ring waits `outputHoldMs`, then drops and counts until a follower comes.
 * - The hold ends with the command.
 */

import { SANDBOX_LIMITS } from "@sandlot/contract";
import type { Timer, World } from "../../../world/world.ts";
import type { OutputRing, WriteGate } from "./output-ring.ts";

export class OutputHold implements WriteGate {
  readonly #ring: OutputRing;
  readonly #world: World;
  /** By the follower's name: the offset before which it has everything. */
  readonly #followers = new Map<string, number>();
  #floor = 0;
  #isSuspended = false;
  #hasEnded = false;
  #patience: Timer | null = null;
  #waiting: (() => void)[] = [];

  constructor(ring: OutputRing, world: World) {
    this.#ring = ring;
    this.#world = world;
    ring.heldBy(this);
  }

  async room(bytes: number): Promise<void> {
    while (!this.#fits(bytes)) {
      if (this.#followers.size === 0) this.#waitForFollower();
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  took(follower: string, offset: number): void {
    this.#followers.set(follower, offset);
    this.#isSuspended = false;
    this.#stopWaiting();
    this.#moved();
  }

  left(follower: string): void {
    this.#followers.delete(follower);
    this.#moved();
  }

  end(): void {
    this.#hasEnded = true;
    this.#stopWaiting();
    this.#moved();
  }

  #moved(): void {
    if (this.#followers.size > 0) this.#floor = Math.min(...this.#followers.values());
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }

  #fits(bytes: number): boolean {
    if (this.#hasEnded || this.#isSuspended) return true;
    const { totalBytes, heldBytes, maxBytes } = this.#ring;
    return totalBytes - Math.max(totalBytes - heldBytes, this.#floor) + bytes <= maxBytes;
  }

  #waitForFollower(): void {
    this.#patience ??= this.#world.timer(SANDBOX_LIMITS.outputHoldMs, () => {
      this.#patience = null;
      this.#isSuspended = true;
      this.#moved();
    });
  }

  #stopWaiting(): void {
    this.#patience?.cancel();
    this.#patience = null;
  }
}
