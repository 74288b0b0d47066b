/**
 * One instance of the fleet as the simulation knows it: its process, what it was given, and what is true about it,
 * which is more than it knows itself.
 */

import type { EngineRef, InstanceId, SandboxId } from "@sandlot/contract";
import type { Fleet } from "../../../packages/fleet/src/fleet.ts";
import type { Calls } from "./calls.ts";
import type { Host } from "./host.ts";
import type { Process } from "./process.ts";
import type { SimWorld } from "./sim-world.ts";

export class Instance {
  readonly id: InstanceId;
  readonly process: Process;
  readonly host: Host;
  readonly world: SimWorld;
  readonly calls: Calls;
  /** `null` until it is open, and after it was closed. */
  fleet: Fleet | null = null;
  closing = false;
  /** What a plot has in store for it: calls of the store whose next answer is late; a registration that seems to fail. */
  readonly script: { readonly late: Set<string>; registerFails: "before-effect" | "after-effect" | null } = {
    late: new Set(),
    registerFails: null,
  };
  /** It has told that closing something did not work. */
  closeFailed = false;

  // What is true about its session.
  /** When its session began in the store's present epoch; `null` while it has none. */
  sessionSince: number | null = null;
  /** When a peer last ended its session. */
  sessionEndedAt = Number.NEGATIVE_INFINITY;
  /** How long it had been paused in all when the store was last lost. */
  pausedMsAtLoss = 0;
  /** When a beat of it last took effect. */
  beatLandedAt = Number.NEGATIVE_INFINITY;
  /** When the last beat that it knows to be confirmed was sent. */
  beatConfirmedSentAt = Number.NEGATIVE_INFINITY;
  /** When it heard that the store gave it a hold, by sandbox and generation. */
  readonly holdsHeardAt = new Map<string, number>();
  /** When a sandbox last answered it, by the engine's name for it. */
  readonly attachedAt = new Map<EngineRef, number>();
  /** Sandboxes of which it heard that a stop of its own has begun. */
  readonly stopped = new Set<SandboxId>();
  /** How far its wall clock was from its monotonic one at its last beat. */
  beatSkewMs: number;
  /** When the store last failed to answer anything. */
  storeFailedAt = Number.NEGATIVE_INFINITY;
  /** When the store failed to answer anything, latest last. */
  readonly storeFailures: number[] = [];
  /** When the requests were sent that the store has not answered yet. */
  readonly unanswered: number[] = [];
  /** When an answer of the store last came that had taken too long to renew a session in time. */
  storeLateAt = Number.NEGATIVE_INFINITY;
  /** Callers of it that wait for a sandbox. */
  waitingAcquires = 0;
  /** When one of them was last answered. */
  waitedAt = Number.NEGATIVE_INFINITY;
  /** When it last had reason to doubt what it sees: a late renewal, a lost session, a clock that jumped. */
  sightBrokenAt = 0;
  /** Peers of which its host told it that their process is dead. */
  readonly toldDead = new Set<InstanceId>();

  constructor(parts: { id: InstanceId; process: Process; host: Host; world: SimWorld; calls: Calls }) {
    this.id = parts.id;
    this.process = parts.process;
    this.host = parts.host;
    this.beatSkewMs = parts.host.skewMs;
    this.world = parts.world;
    this.calls = parts.calls;
  }

  /** Whether the store failed it within this span. */
  wasFailed(from: number, to: number): boolean {
    return this.storeFailures.some((at) => at > from && at <= to);
  }

  /** It has run all the time since the store was lost at `emptiedAt`, and each answer of the store came in time. */
  hasReachedStore(emptiedAt: number, tooLateMs: number, now: number): boolean {
    if (this.storeFailedAt >= emptiedAt || this.process.pausedMs !== this.pausedMsAtLoss) return false;
    return this.storeLateAt < emptiedAt && this.unanswered.every((sentAt) => now - sentAt < tooLateMs);
  }

  get name(): string {
    return this.process.name;
  }
}
