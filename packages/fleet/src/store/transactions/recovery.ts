/**
 * After a loss of the store (rule 12): holders restore the sandboxes they remember; other engine objects are adopted
 * through their marker or claimed for removal. None of these steps makes a blank.
 */

import type { Epoch } from "@sandlot/contract";
import { isAnonymous, type ReadyRecord, type RemoteLease, type StoppingRecord } from "../record.ts";
import type {
  AdoptRequest,
  ClaimForRemovalRequest,
  HoldAnswer,
  HoldRequest,
  RejoinRequest,
  RestoreRequest,
} from "../store.ts";
import type { Tables } from "../tables.ts";
import { addHold, firstRecord, nextGeneration } from "./creation.ts";
import { mayLiveOn, reaches, refuseWhileRecovering, settle } from "./engines.ts";
import { hasSession, insert, raiseGeneration, refuseIfFull } from "./rows.ts";

export function restore(tables: Tables, request: RestoreRequest): HoldAnswer {
  const { record: remembered, instance, seq } = request;
  if (!hasSession(tables, instance)) return { kind: "unknown-session" };
  const { sandboxId, generation, user, thread } = remembered;
  const known = tables.record(sandboxId);
  if (known !== null) {
    if (known.state !== "ready" || known.generation !== generation) return { kind: "gone", record: known };
    return { kind: "held", record: addHold(tables, known, { sandboxId, generation, instance, seq }) };
  }
  // It has ended since, and the engine has confirmed that nothing is left.
  if (tables.tombstone(sandboxId) !== null) return { kind: "gone", record: null };
  const claimed = user === null || thread === null ? null : tables.recordOf(user, thread);
  if (claimed !== null) return { kind: "gone", record: claimed };
  // It was purged on this engine, and lives on another one now.
  if (user !== null && thread !== null && !mayLiveOn(tables, user, thread, remembered.engine))
    return { kind: "gone", record: null };
  raiseGeneration(tables, generation);
  const holders = { [instance]: { generation, seq, since: tables.now() } };
  const record: ReadyRecord = {
    ...withRenewedLeases(remembered),
    ...{ holders, state: "ready", actor: null, parkedAt: null, purge: false, reason: null },
    revision: remembered.revision + 1,
  };
  settle(tables, record);
  return { kind: "held", record: insert(tables, record) };
}

/** Each hold is judged for itself, and the session for all. */
export function rejoin(tables: Tables, { instance, epoch, holds }: RejoinRequest): readonly HoldAnswer[] {
  if (tables.meta().epoch !== epoch) return holds.map(() => ({ kind: "unknown-session" }));
  return holds.map((one) =>
    one.kind === "hold" ? holdAgain(tables, { ...one, instance }) : restore(tables, { ...one, instance }),
  );
}

/**
 * A hold of this epoch, whose session has ended since. Also while the store recovers: what a holder has put back is not
 * newly held, and its instance may be the only one that can end the recovery.
 */
function holdAgain(tables: Tables, request: HoldRequest): HoldAnswer {
  const { sandboxId, generation, instance } = request;
  if (!hasSession(tables, instance)) return { kind: "unknown-session" };
  const record = tables.record(sandboxId);
  if (record?.state !== "ready" || record.generation !== generation) return { kind: "gone", record };
  return { kind: "held", record: addHold(tables, record, request) };
}

/** Renewals may have been lost with the store: a new beat makes every observer count anew. */
export function withRenewedLeases(record: ReadyRecord): ReadyRecord {
  const rows = Object.entries<RemoteLease>(record.leases);
  const leases = rows.map(([leaseId, lease]) => [leaseId, { ...lease, beat: lease.beat + LOST_BEATS }] as const);
  return { ...record, leases: Object.fromEntries(leases) };
}

/** More renewals than happen between two beats of a session. */
const LOST_BEATS = 1_000;

export function adopt(tables: Tables, request: AdoptRequest): boolean {
  const { sandboxId, user, thread, generation, ref, place, limits, epoch } = request;
  if (tables.meta().epoch !== epoch) return false;
  if (tables.record(sandboxId) !== null || tables.recordOf(user, thread) !== null) return false;
  if (!mayLiveOn(tables, user, thread, request.engine)) return false;
  // It has ended before; an engine object with its id landed too late.
  if (tables.tombstone(sandboxId) !== null) return false;
  if ((tables.tombstoneOf(user, thread)?.generation ?? 0) > generation) return false;
  if (refuseIfFull(tables, limits, user, request.engine) !== null) return false;
  raiseGeneration(tables, generation);
  const record = firstRecord(tables, { ...request, state: "ready", actor: null });
  settle(tables, insert(tables, { ...record, ref, place, parkedAt: tables.now() }));
  return true;
}

export function claimForRemoval(tables: Tables, request: ClaimForRemovalRequest): StoppingRecord | null {
  if (!hasSession(tables, request.actor) || tables.record(request.sandboxId) !== null) return null;
  if (!reaches(tables, request.actor, request.engine)) return null;
  if (request.epoch !== undefined && request.epoch !== tables.meta().epoch) return null;
  const { key, ref, place, superseded, purge = false, emptyHome = false, restore } = request;
  /** A person asked for it, so the thread must be its own. */
  const isRequested = purge || emptyHome || restore !== undefined;
  const given = request.generation;
  if (superseded !== undefined) {
    const newer = tables.recordOf(superseded.user, superseded.thread);
    if (newer === null || given === null || newer.generation <= given) return null;
  }
  const claimable =
    key !== null &&
    tables.recordOf(key.user, key.thread) === null &&
    mayLiveOn(tables, key.user, key.thread, request.engine);
  // A store that was lost does not know yet whether the thread has a sandbox.
  if (isRequested && (!claimable || refuseWhileRecovering(tables, [request.engine], key) !== null)) return null;
  // The generation was given before this transaction: one older than the thread's last removes nothing.
  const last = isRequested && claimable ? tables.tombstoneOf(key.user, key.thread) : null;
  if (given !== null && last !== null && last.generation > given) return null;
  const user = claimable ? key.user : null;
  const thread = claimable ? key.thread : null;
  const generation = given ?? nextGeneration(tables);
  raiseGeneration(tables, generation);
  const record: StoppingRecord = {
    ...firstRecord(tables, { ...request, user, thread, generation, state: "stopping" }),
    ...{ ref, place, purge: purge || isAnonymous(thread), reason: isRequested ? "destroyed" : "orphaned" },
    ...(emptyHome && { emptyHome }),
    ...(restore !== undefined && { restore, reason: "restored" as const }),
  };
  // A look around has found it, perhaps with files. What its own maker gives up was never used.
  if (request.epoch !== undefined) settle(tables, record);
  return insert(tables, record);
}

export function endRecovery(tables: Tables, epoch: Epoch, engine: string): void {
  if (tables.meta().epoch === epoch && tables.isRecovering(engine)) tables.endRecovery(engine);
}
