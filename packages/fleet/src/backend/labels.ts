/**
 * Labels: what everything a backend makes carries, so that it can be found again when all else was lost.
 * They hold hashes and random ids only, never what a user typed.
 */

import { hash } from "node:crypto";
import type {
  BlueprintHash,
  FleetId,
  Generation,
  SandboxId,
  ThreadId,
  ThreadKey,
  Token,
  UserId,
} from "@sandlot/contract";

export interface Labels {
  readonly fleet: FleetId;
  readonly sandboxId: SandboxId;
  /** The generation it was made as. Binding gives a blank a later one, which only its marker and daemon know. */
  readonly generation: Generation;
  readonly threadKey: ThreadKey | null;
  readonly blueprintHash: BlueprintHash;
}

/**
 * Written beside a sandbox, outside every mount, before a thread's sandbox is made or a blank is bound. After the
 * store was lost, this is the only proof of which thread a sandbox belongs to. It holds the token, so it is readable
 * by the fleet's own account only.
 */
export interface Marker {
  readonly sandboxId: SandboxId;
  readonly user: UserId;
  readonly thread: ThreadId;
  readonly generation: Generation;
  readonly token: Token;
  readonly blueprint: string;
  readonly blueprintHash: BlueprintHash;
}

/** The separator cannot occur in a user id, so two different pairs never give one text. */
export function threadKeyOf(user: UserId, thread: ThreadId): ThreadKey {
  return hash("sha256", `${user}\n${thread}`).slice(0, 32) as ThreadKey;
}
