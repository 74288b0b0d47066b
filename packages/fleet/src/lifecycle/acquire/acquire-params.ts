/**
 * What a caller asked for, checked. Everything after this point can rely on it.
 */

import {
  isSandlotError,
  parseThreadId,
  refuseUnknownOptions,
  SandlotError,
  type ThreadId,
  type UserId,
} from "@sandlot/contract";
import { blueprintNamed } from "../../config/blueprint-named.ts";
import { parseDelay, parseUser } from "../../config/call-options.ts";
import type { NamedBlueprint, Settings } from "../../config/settings.ts";
import type { AcquireRequest } from "../../fleet.ts";
import type { SandboxRecord } from "../../store/record.ts";
import type { Slot } from "../hold/slot.ts";

export interface AcquireParams {
  readonly user: UserId;
  readonly thread: ThreadId;
  /** Whether a thread that has neither a sandbox nor files is refused. */
  readonly existing: boolean;
  /** `null`: whatever the thread lives on, and the default where it does not live yet. */
  readonly blueprint: NamedBlueprint | null;
  readonly timeoutMs: number;
  /** Set for a lease of a remote caller. */
  readonly ttlMs: number | null;
}

const REQUEST_KEYS = ["user", "thread", "existing", "blueprint", "purpose", "signal", "timeoutMs", "ttlMs"] as const;

/** `anonymous` makes up the key of a request without a thread, or refuses it. */
export function parseAcquireParams(
  request: AcquireRequest,
  settings: Settings,
  anonymous: () => ThreadId,
): AcquireParams {
  refuseUnknownOptions("acquire", request, REQUEST_KEYS);
  const user = parseUser(request.user);
  const thread = request.thread === undefined ? anonymous() : parseThreadId(request.thread);
  const blueprint = request.blueprint === undefined ? null : blueprintNamed(settings, request.blueprint);
  const timeoutMs = parseDelay("timeoutMs", request.timeoutMs ?? settings.acquireTimeoutMs);
  const ttlMs = request.ttlMs === undefined ? null : parseDelay("ttlMs", request.ttlMs);
  return { user, thread, existing: request.existing === true, blueprint, timeoutMs, ttlMs };
}

/** For a lease whose sandbox is gone: the same thread, from the blueprint that it had. */
export function paramsOfRestart({ user, thread, record }: Slot, settings: Settings): AcquireParams {
  const blueprint = blueprintNamed(settings, record.blueprint);
  return { user, thread, existing: false, blueprint, timeoutMs: settings.acquireTimeoutMs, ttlMs: null };
}

/** An opening found no thread. Its caller wanted only one that exists; those who joined it did not, and look again: `null`. */
export function lookAgainUnless(existing: boolean, error: unknown): null {
  if (!existing && isSandlotError(error, "thread_not_found")) return null;
  throw error;
}

export function refuseMismatch(record: SandboxRecord, { blueprint, thread }: AcquireParams): void {
  if (blueprint === null || blueprint.hash === record.blueprintHash) return;
  throw new SandlotError("blueprint_mismatch", { thread, wanted: blueprint.name, actual: record.blueprint });
}
