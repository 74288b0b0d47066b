/** Sessions: what an instance says of itself with every beat, and what it is answered. */

import type { Epoch, Generation, InstanceId, LossReason, SandboxId } from "@sandlot/contract";
import type { ProcessIdentity } from "../world/world.ts";

export interface Session {
  readonly instance: InstanceId;
  readonly beat: number;
  readonly lastBeatAt: number;
  readonly identity: ProcessIdentity;
  /** The engines that the instance reaches. */
  readonly engines: readonly string[];
  /** The advertised address of the instance's gateway; `null`: it has none. */
  readonly address: string | null;
}

export interface BeatRequest {
  readonly instance: InstanceId;
  readonly identity: ProcessIdentity;
  /** See `Session`. */
  readonly engines: readonly string[];
  readonly address: string | null;
  /** One more than the last; an older one is ignored, so that a late beat cannot undo a newer one. */
  readonly beat: number;
  /** The epoch this instance knows; `null` on its very first beat. */
  readonly epoch: Epoch | null;
  /** Begins a missing session. Without it a missing session is `unknown-session`. */
  readonly register: boolean;
  /** Everything this instance holds or is about to hold, as of its counter `asOf`. */
  readonly held: readonly { readonly sandboxId: SandboxId; readonly generation: Generation }[];
  readonly asOf: number;
  /** The highest generation this instance has seen; the store's counter never falls behind it. */
  readonly generationFloor: number;
  /** How long threads without a home wait for the recovery of these engines. Absent: until it is over. */
  readonly awaitedMs?: number;
}

export type BeatAnswer =
  | {
      readonly kind: "ok";
      readonly epoch: Epoch;
      readonly recovering: boolean;
      /** The store's clock, for idleness and age. */
      readonly now: number;
      /** The holds in `held` that this instance has lost, and why. */
      readonly lost: readonly {
        readonly sandboxId: SandboxId;
        readonly generation: Generation;
        readonly reason: LossReason;
      }[];
    }
  | { readonly kind: "unknown-session" }
  | { readonly kind: "new-epoch"; readonly epoch: Epoch };
