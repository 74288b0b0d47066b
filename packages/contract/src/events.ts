/**
 * The events of a fleet. Names are noun-verb. An event is a fact that has happened, never a request; correctness never
 * depends on receiving one.
 */

import type { DeathCause, LossReason } from "./errors.ts";
import type { Generation, InstanceId, LeaseId, SandboxId, ThreadId, UserId } from "./ids.ts";

/** Why a sandbox was stopped. */
export type StopReason =
  | "create-failed"
  | "create-abandoned"
  | "crashed"
  | "destroyed"
  | "evicted"
  | "expired"
  | "idle"
  | "orphaned"
  | "released"
  | "restored"
  | "stale-blueprint"
  | "surplus"
  | "shutdown";

/** A limit that a sandbox can reach: it ends or hinders only the sandbox's own processes. */
export type LimitKind = "memory" | "pids" | "disk";

/** How an acquire was served, from fast to slow. */
export type AcquirePath = "held" | "parked" | "blank" | "cold";

/**
 * Why a thread's new sandbox was made instead of bound from a blank: the engine has no blanks; the pool keeps none of
 * this blueprint; the acquire brought mounts of its own; none was ready, or another caller took it.
 */
export const POOL_MISSES = ["unsupported", "not-kept", "own-mounts", "none-ready"] as const;
export type PoolMiss = (typeof POOL_MISSES)[number];

interface About {
  readonly sandboxId: SandboxId;
  readonly generation: Generation;
  readonly user: UserId | null;
  readonly thread: ThreadId | null;
}

interface AboutThread {
  readonly user: UserId;
  readonly thread: ThreadId;
}

interface AboutLease extends About {
  readonly leaseId: LeaseId;
  readonly purpose: string;
}

export type FleetEventBody =
  /** `engine` is the one that has the sandbox. */
  | ({
      readonly type: "sandbox-created";
      readonly blank: boolean;
      readonly durationMs: number;
      readonly engine: string;
      /** Why a thread's sandbox was made instead of bound from a blank. */
      readonly miss?: PoolMiss;
    } & About)
  | ({ readonly type: "sandbox-bound"; readonly from: Generation } & About)
  | ({ readonly type: "sandbox-attached"; readonly durationMs: number } & About)
  | ({ readonly type: "sandbox-parked"; readonly blueprint: string } & About)
  /** `cause` where the engine has reported one. */
  | ({ readonly type: "sandbox-lost"; readonly reason: LossReason; readonly cause?: DeathCause } & About)
  | ({ readonly type: "sandbox-stopping"; readonly reason: StopReason } & About)
  | ({
      readonly type: "sandbox-stopped";
      readonly reason: StopReason;
      readonly durationMs: number;
      readonly blueprint: string;
    } & About)
  | ({ readonly type: "sandbox-stop-failed"; readonly problem: string; readonly attempt: number } & About)
  | ({ readonly type: "sandbox-adopted"; readonly engine: string } & About)
  | ({ readonly type: "lease-acquired"; readonly path: AcquirePath; readonly durationMs: number } & AboutLease)
  | ({ readonly type: "lease-released"; readonly heldMs: number } & AboutLease)
  | ({ readonly type: "lease-lost"; readonly reason: LossReason } & AboutLease)
  | ({ readonly type: "lease-leaked"; readonly unusedMs: number; readonly stack: string | null } & AboutLease)
  | ({
      readonly type: "checkpoint-taken";
      readonly checkpoint: string;
      readonly cause: string;
      readonly durationMs: number;
      readonly addedBytes: number;
    } & AboutThread)
  /** A bound of `checkpoints` was reached, or a checkpoint failed. The thread goes on without it. */
  | ({ readonly type: "checkpoint-failed"; readonly code: string | null; readonly problem: string } & AboutThread)
  /** At most one each second, of a long checkpoint or restore that a caller asked for. */
  | ({
      readonly type: "checkpoint-progress";
      readonly requestId: string;
      readonly phase: string;
      readonly files: number;
      readonly bytes: number;
      readonly totalFiles: number | null;
    } & AboutThread)
  | ({
      readonly type: "workspace-restored";
      readonly checkpoint: string;
      readonly safety: string;
      readonly as: "restore" | "undo" | "redo";
      readonly requestId: string;
    } & AboutThread)
  /** The workspace is unchanged, and the thread goes on. */
  | ({
      readonly type: "workspace-restore-refused";
      readonly checkpoint: string;
      readonly requestId: string;
      readonly problem: string;
    } & AboutThread)
  | ({
      readonly type: "egress-refused";
      readonly host: string;
      readonly port: number;
      readonly rule: string;
      readonly because: string;
    } & About)
  | ({ readonly type: "limit-hit"; readonly limit: LimitKind; readonly because: string } & About)
  | {
      readonly type: "image-pulling";
      readonly image: string;
      readonly state: "started" | "progress" | "pulled" | "failed";
      readonly currentBytes: number;
      readonly totalBytes: number;
      readonly problem: string | null;
    }
  | {
      /** A caller waits for room. */
      readonly type: "acquire-queued";
      readonly user: UserId;
      readonly thread: ThreadId;
      readonly queued: number;
    }
  | { readonly type: "capacity-exceeded"; readonly max: number; readonly count: number }
  | { readonly type: "instance-buried"; readonly peer: InstanceId }
  | { readonly type: "instance-doubted"; readonly problem: string }
  | { readonly type: "store-lost"; readonly problem: string }
  | { readonly type: "store-recovered" }
  | { readonly type: "epoch-changed"; readonly restored: number; readonly lost: number }
  | { readonly type: "close-failed"; readonly what: string; readonly problem: string }
  | { readonly type: "housekeeping-failed"; readonly task: string; readonly problem: string };

/** An event with its time and instance. `at` is wall-clock milliseconds. An event of a sandbox also names its engine. */
export type FleetEvent = FleetEventBody & {
  readonly at: number;
  readonly instance: InstanceId;
  readonly engine?: string;
};

export type FleetEventType = FleetEventBody["type"];
