/**
 * The outside world as the fleet sees it: time, randomness, and the identity of this process.
 *
 * Everything that would make two runs differ comes in through this interface, so that a simulation can supply its own
 * and replay a failing run from its seed. `system-world.ts` is the only file that uses the real machine.
 */

export type Liveness = "alive" | "dead" | "unknown";

export interface Timer {
  cancel(): void;
}

/** Enough to decide on the same machine whether a process is still the one that wrote this. */
export interface ProcessIdentity {
  /** Changes with each boot. Two identities are comparable only when this and `pidNamespace` are equal. */
  readonly bootId: string;
  readonly pidNamespace: string;
  readonly pid: number;
  /** Start time in clock ticks since boot: distinguishes a process from a later one with the same pid. */
  readonly startTime: string;
}

export interface World {
  /** Milliseconds since 1970. May jump. */
  wallMs(): number;
  /**
   * Milliseconds since some moment. Never goes back, and stands still while the host sleeps. All processes of one boot
   * of a host read the same value, so that they can exchange moments.
   */
  monotonicMs(): number;
  /** Calls `fire` once, later. A `background` timer does not keep the process alive. */
  timer(delayMs: number, fire: () => void, options?: { readonly background?: boolean }): Timer;
  /** A number from 0 (included) to 1 (excluded). For jitter only. */
  random(): number;
  /** Unguessable hexadecimal digits, two per byte. */
  randomHex(bytes: number): string;
  readonly identity: ProcessIdentity;
  /** Whether the process that wrote `identity` still runs. `unknown` when this cannot be decided from here. */
  processLiveness(identity: ProcessIdentity): Liveness;
}
