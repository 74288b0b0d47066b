/** The validated parameters of an acquire. All later steps rely on them. */

import {
  isSandlotError,
  parseThreadId,
  refuseUnknownOptions,
  SandlotError,
  type ThreadId,
  type UserId,
} from "@sandlot/contract";
import { withMounts } from "../../backend/blueprint.ts";
import { blueprintNamed } from "../../config/blueprint-named.ts";
import { parseDelay, parseUser } from "../../config/call-options.ts";
import { DEFAULT_BLUEPRINT } from "../../config/defaults.ts";
import type { NamedBlueprint, Settings } from "../../config/settings.ts";
import type { AcquireRequest } from "../../fleet.ts";
import type { SandboxRecord } from "../../store/record.ts";
import type { Slot } from "../hold/slot.ts";

export interface AcquireParams {
  readonly user: UserId;
  readonly thread: ThreadId;
  /** Refuses a thread that has neither a sandbox nor files. */
  readonly existing: boolean;
  /** `null`: the blueprint of the thread's sandbox, or the default for a thread without one. */
  readonly blueprint: NamedBlueprint | null;
  readonly timeoutMs: number;
  /** Set for a remote lease. */
  readonly ttlMs: number | null;
}

const REQUEST_KEYS = [
  ...([
    "user",
    "thread",
    "existing",
    "blueprint",
    "mounts",
    "from",
    "purpose",
    "signal",
    "timeoutMs",
    "ttlMs",
  ] as const),
];

/** `anonymous` makes the key of a request without a thread, or refuses the request. */
export function parseAcquireParams(
  request: AcquireRequest,
  settings: Settings,
  anonymous: () => ThreadId,
): AcquireParams {
  refuseUnknownOptions("acquire", request, REQUEST_KEYS);
  const user = parseUser(request.user);
  const thread = request.thread === undefined ? anonymous() : parseThreadId(request.thread);
  const blueprint = blueprintOf(request, settings);
  const timeoutMs = parseDelay("timeoutMs", request.timeoutMs ?? settings.acquireTimeoutMs);
  const ttlMs = request.ttlMs === undefined ? null : parseDelay("ttlMs", request.ttlMs);
  return { user, thread, existing: request.existing === true, blueprint, timeoutMs, ttlMs };
}

/** `null` for a request that names neither a blueprint nor mounts. */
function blueprintOf({ blueprint, mounts = [] }: AcquireRequest, settings: Settings): NamedBlueprint | null {
  if (blueprint === undefined && mounts.length === 0) return null;
  return withMounts(blueprintNamed(settings, blueprint === undefined ? DEFAULT_BLUEPRINT : blueprint), mounts);
}

/** For a lease whose sandbox is gone: the same thread and the same blueprint. */
export function paramsOfRestart({ user, thread, record }: Slot, settings: Settings): AcquireParams {
  const blueprint = blueprintNamed(settings, record.blueprint);
  return { user, thread, existing: false, blueprint, timeoutMs: settings.acquireTimeoutMs, ttlMs: null };
}

/** An opening found no thread. That is an error for a caller with `existing`; other callers look again. */
export function lookAgainUnless(existing: boolean, error: unknown): void {
  if (existing || !isSandlotError(error, "thread_not_found")) throw error;
}

export function refuseMismatch(record: SandboxRecord, { blueprint, thread }: AcquireParams): void {
  if (blueprint === null || blueprint.hash === record.blueprintHash) return;
  throw new SandlotError("blueprint_mismatch", { thread, wanted: blueprint.name, actual: record.blueprint });
}
