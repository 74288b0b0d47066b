/** The outcomes of an opening for its caller: what happened to the thread's state, or why there is no sandbox. */

import {
  isErrorCode,
  isSandlotError,
  RESTORED,
  RESTORED_WITHOUT_HOME,
  type Recovery,
  SandlotError,
} from "@sandlot/contract";
import type { Settings } from "../../config/settings.ts";
import { problemOf } from "../../observe/event-bus.ts";
import type { Arrival, ReadyRecord, SandboxRecord } from "../../store/record.ts";
import { SAME } from "../hold/recoveries.ts";

const EMPTY: Recovery = { kind: "empty", lost: [], survived: [] };

export function recoveryOf(record: ReadyRecord, arrival: Arrival | null, { blueprints }: Settings): Recovery {
  if (arrival === null || isShared(record)) return SAME;
  if (arrival === "empty") return EMPTY;
  return blueprints[record.blueprint]?.blueprint.home === "temporary" ? RESTORED_WITHOUT_HOME : RESTORED;
}

/** Other callers are using it, so it is not new to its thread. */
function isShared({ holders, leases }: ReadyRecord): boolean {
  return Object.keys(holders).length > 1 || Object.keys(leases).length > 0;
}

/** Errors that stay as they are although a retry does not help: their remedy is the caller's or the operator's to apply. */
const KEPT_CODES: ReadonlySet<string> = new Set(["workspace_conflict", "protocol_incompatible"]);

/** Wraps an error of the engine: for the caller the sandbox is unreachable now. */
export function unreachable({ sandboxId }: SandboxRecord, error: unknown): unknown {
  // A code that this version does not know came from inside the sandbox: it does not decide what an acquire answers with.
  const isOurs = error instanceof SandlotError && isErrorCode(error.code);
  if (isOurs && (error.retryable || KEPT_CODES.has(error.code))) return error;
  return new SandlotError(
    "sandbox_unreachable",
    { sandboxId, problem: problemOf(error), retryAfterMs: 1_000 },
    { cause: error },
  );
}

export function expired({ sandboxId }: SandboxRecord, { maxLifetimeMs }: Settings): SandlotError {
  return new SandlotError("sandbox_expired", { sandboxId, maxLifetimeMs, retryAfterMs: 1_000 });
}

/** A later generation has used the thread's workspace. */
export class Overtaken extends Error {}

export function overtaken(error: unknown): never {
  throw isSandlotError(error, "stale_generation") ? new Overtaken() : error;
}
