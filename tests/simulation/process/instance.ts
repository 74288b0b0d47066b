/**
 * One instance of the fleet as the simulation knows it: its process, its inputs, and the truth about it, which is more
 * than it knows itself.
 */

import type { EngineRef, InstanceId, SandboxId } from "@sandlot/contract";
import type { Fleet } from "../../../packages/fleet/src/fleet.ts";
import type { Calls } from "./calls.ts";
import type { Host } from "./host.ts";
import type { Process } from "./process.ts";
import type { SimWorld } from "./sim-world.ts";

/** A moment, and the events that had run by then. */
interface Moment {
  readonly at: number;
  readonly turn: number;
}

export class Instance {
  readonly id: InstanceId;
  readonly process: Process;
  readonly host: Host;
  /** The engine that its host reaches. */
  readonly engine: string;
  readonly world: SimWorld;
  readonly calls: Calls;
  /** `null` until it is open, and after it was closed. */
  fleet: Fleet | null = null;
  closing = false;
  /** The plan of a plot: store calls whose next response is late, and a registration that seems to fail. */
  readonly script: { readonly late: Set<string>; registerFails: "before-effect" | "after-effect" | null } = {
    late: new Set(),
    registerFails: null,
  };
  /** It reported that a close step failed. */
  closeFailed = false;

  // The truth about its session.
  /** When its session began in the store's present epoch; `null` while it has none. */
  sessionSince: number | null = null;
  /** When a peer last ended its session. */
  sessionEndedAt = Number.NEGATIVE_INFINITY;
  /** How long it had been paused in all when the store was last lost. */
  pausedMsAtLoss = 0;
  /** When its last heartbeat took effect. */
  beatLandedAt = Number.NEGATIVE_INFINITY;
  /** When each of its heartbeats took effect, by its count. */
  readonly beatsLanded = new Map<number, number>();
  /** When the heartbeat took effect that the store fell back to, having lost the later ones; `null`: it has the last. */
  beatKeptAt: number | null = null;
  /** When it sent the last heartbeat that it knows to be confirmed. */
  beatConfirmedSentAt = Number.NEGATIVE_INFINITY;
  /** When it learned of each hold, by sandbox and generation. */
  readonly holdsHeardAt = new Map<string, number>();
  /** When a sandbox last responded to it, by the engine's name for the sandbox. */
  readonly attachedAt = new Map<EngineRef, number>();
  /** Sandboxes whose stop it has begun, as far as it knows. */
  readonly stopped = new Set<SandboxId>();
  /** The store's clock in the last answer that reached it, and the moment of that reading. */
  storeHeard: { readonly at: number; readonly clock: number } | null = null;
  /** The difference between the store's clock and its monotonic one at its last confirmed heartbeat, and its error. */
  beatStoreOffset: { readonly ms: number; readonly errorMs: number } | null = null;
  /** The difference between its wall clock and its monotonic one at its last heartbeat. */
  beatSkewMs: number;
  /** When a store call last failed. */
  storeFailedAt = Number.NEGATIVE_INFINITY;
  /** When store calls failed, latest last. */
  readonly storeFailures: Moment[] = [];
  /** When its pending store requests were sent. */
  readonly unanswered: number[] = [];
  /** When a store response last came too late to renew a session in time. */
  storeLateAt = Number.NEGATIVE_INFINITY;
  /** Its callers that wait for a sandbox. */
  waitingAcquires = 0;
  /** When one of them last got a response. */
  waitedAt = Number.NEGATIVE_INFINITY;
  /** When it last had reason to doubt itself: its session was over, or a clock jumped. */
  doubtedAt = Number.NEGATIVE_INFINITY;
  /** When it last had reason to doubt its view: a late renewal, a lost session, a clock that jumped. */
  sightBrokenAt = 0;
  /** The event with which it learned of that. */
  sightBrokenTurn = -1;
  /** When a consistent list last showed it that its engine has nothing of the fleet. */
  sawNothingAt = Number.NEGATIVE_INFINITY;
  /** When it last asked each sandbox whether it is busy, and when it heard; `null`: it has not. */
  readonly activityAsked = new Map<EngineRef, { readonly at: number; heardAt: number | null }>();
  /** Peers whose process is dead, according to its host. */
  readonly toldDead = new Set<InstanceId>();

  constructor(parts: {
    id: InstanceId;
    process: Process;
    host: Host;
    engine: string;
    world: SimWorld;
    calls: Calls;
  }) {
    this.id = parts.id;
    this.process = parts.process;
    this.host = parts.host;
    this.engine = parts.engine;
    this.beatSkewMs = parts.host.skewMs;
    this.world = parts.world;
    this.calls = parts.calls;
  }

  /** Whether the store failed it within this span, and before this event. */
  wasFailed(from: number, to: number, turn = Number.POSITIVE_INFINITY): boolean {
    return this.storeFailures.some((failed) => failed.at > from && failed.at <= to && failed.turn < turn);
  }

  /** When the store last heard of it, as far as the store knows. */
  get heardAt(): number {
    return this.beatKeptAt ?? this.beatLandedAt;
  }

  /** It has run without a pause since the store was lost at `emptiedAt`, and each store response came in time. */
  hasReachedStore(emptiedAt: number, tooLateMs: number, now: number): boolean {
    if (this.storeFailedAt >= emptiedAt || this.process.pausedMs !== this.pausedMsAtLoss) return false;
    return this.storeLateAt < emptiedAt && this.unanswered.every((sentAt) => now - sentAt < tooLateMs);
  }

  get name(): string {
    return this.process.name;
  }
}
