/**
 * What an instance asks of a store whose records do not tell everything: after a loss, and for sandboxes that only an
 * engine knows.
 */

import type { EngineRef, Epoch, Generation, InstanceId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import type { Place } from "../backend/backend.ts";
import type { RestoreTarget } from "../backend/checkpoints.ts";
import type { ReadyRecord } from "./record.ts";
import type { Limits, NewRecord } from "./store.ts";

export interface RestoreRequest {
  /** The record that this instance remembers. */
  readonly record: ReadyRecord;
  readonly instance: InstanceId;
  readonly seq: number;
}

export interface RejoinRequest {
  readonly instance: InstanceId;
  /** Its clock gives the remembered records their times. Another epoch answers `unknown-session` for each hold. */
  readonly epoch: Epoch | null;
  readonly holds: readonly RejoinHold[];
}

/** A hold that the store gave in the present epoch, or one that a lost store gave. */
export type RejoinHold =
  | { readonly kind: "hold"; readonly sandboxId: SandboxId; readonly generation: Generation; readonly seq: number }
  | { readonly kind: "restore"; readonly record: ReadyRecord; readonly seq: number };

export interface AdoptRequest extends NewRecord {
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly generation: Generation;
  readonly ref: EngineRef;
  readonly place: Place;
  readonly limits: Limits;
  /** The epoch of this judgement; another epoch needs a new judgement. */
  readonly epoch: Epoch;
}

export interface ClaimForRemovalRequest extends NewRecord {
  /** `null`: a new one. */
  readonly generation: Generation | null;
  readonly ref: EngineRef | null;
  readonly place: Place;
  /** The thread in its marker. Claimed if it is free, so that no acquire succeeds before its workspace is home. */
  readonly key: { readonly user: UserId; readonly thread: ThreadId } | null;
  readonly actor: InstanceId;
  /** The epoch of this judgement, if there was one; another epoch needs a new judgement. */
  readonly epoch?: Epoch;
  /** Only if this thread has a record of a later generation. */
  readonly superseded?: { readonly user: UserId; readonly thread: ThreadId };
  /** Deletes a thread without a sandbox: its key must be free, and its workspace goes. */
  readonly purge?: boolean;
  /** Claims a thread without a sandbox in the same way, and empties the home in its workspace. */
  readonly emptyHome?: boolean;
  /** Claims a thread without a sandbox in the same way, and changes its workspace to a checkpoint. */
  readonly restore?: RestoreTarget;
}
