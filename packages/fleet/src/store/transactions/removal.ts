/** → stopping → absent, and taking over the work of a dead instance (rules 1, 3, 10, 11). */

import type { InstanceId, SandboxId } from "@sandlot/contract";
import { isAnonymous, isHeld, type StoppingRecord } from "../record.ts";
import type { StopAnswer, StopRequest, TakeOverRequest } from "../store.ts";
import type { Tables } from "../tables.ts";
import { reaches } from "./engines.ts";
import { change, erase, hasSession, move } from "./rows.ts";

/** An anonymous thread is never requested again, so its workspace always goes with its sandbox. */
export function stop(tables: Tables, request: StopRequest): StopAnswer {
  if (!hasSession(tables, request.actor)) return { kind: "unknown-session" };
  const record = tables.record(request.sandboxId);
  if (record === null || record.generation !== request.generation) return { kind: "lost", record };
  if (!reaches(tables, request.actor, record.engine)) return { kind: "lost", record };
  if (record.state === "stopping") return { kind: "lost", record: addPurge(tables, record, request.purge) };

  const { mode, actor } = request;
  const purge = request.purge || record.purge || isAnonymous(record.thread);
  // A reason noted during the create wins.
  const reason = record.reason ?? request.reason;
  if (mode.kind === "cancel") {
    if (record.state !== "creating") return { kind: "lost", record };
    const isNoted = record.reason !== null && record.purge === purge;
    return { kind: "noted", record: isNoted ? record : change(tables, record, { reason, purge }) };
  }
  if (mode.kind === "abandon") {
    if (record.state !== "creating" || record.actor !== actor) return { kind: "lost", record };
  } else {
    if (record.state !== "ready") return { kind: "lost", record };
    if (mode.kind === "unheld" && isHeld(record)) return { kind: "held", record };
    // Its holders may not have re-registered yet.
    if (mode.kind === "unheld" && tables.isRecovering(record.engine)) return { kind: "lost", record };
    if (mode.kind === "unheld" && record.revision !== mode.revision) return { kind: "lost", record };
    // The store was lost since, and has adopted the sandbox again.
    if (mode.kind === "unheld" && record.createdAt !== mode.createdAt) return { kind: "lost", record };
  }
  const emptyHome = request.emptyHome === true && !purge ? ({ emptyHome: true } as const) : {};
  const restore = request.restore === undefined || purge ? {} : { restore: request.restore };
  const files = { purge, ...emptyHome, ...restore };
  const stopping: StoppingRecord = { ...record, ...ENDED, state: "stopping", actor, reason, ...files };
  return { kind: "stopping", record: move(tables, record, stopping) };
}

/** A stopping sandbox has no holders. */
const ENDED = { holders: {}, leases: {}, parkedAt: null } as const;

/**
 * Adds a purge. The stopping instance notices, because its removal then has an old revision. A record without a thread
 * has no workspace, so its purge would be an empty promise.
 */
function addPurge(tables: Tables, record: StoppingRecord, purge: boolean): StoppingRecord {
  return purge && !record.purge && record.thread !== null ? change(tables, record, { purge: true }) : record;
}

export function takeOver(tables: Tables, request: TakeOverRequest): StoppingRecord | null {
  const record = tables.record(request.sandboxId);
  if (record === null || record.revision !== request.revision || record.state === "ready") return null;
  // Its own stop once more, so that a removal of ours that was given up changes nothing when it lands late.
  const isOwnStop = record.state === "stopping" && record.actor === request.actor;
  if ((hasSession(tables, record.actor) && !isOwnStop) || !hasSession(tables, request.actor)) return null;
  if (!reaches(tables, request.actor, record.engine)) return null;
  const { actor } = request;
  if (record.state === "stopping") return change(tables, record, { actor });
  const purge = record.purge || isAnonymous(record.thread);
  const reason = record.reason ?? "create-abandoned";
  return move<StoppingRecord>(tables, record, { ...record, state: "stopping", actor, reason, purge });
}

export function remove(
  tables: Tables,
  request: { sandboxId: SandboxId; revision: number; actor: InstanceId },
): boolean {
  const record = tables.record(request.sandboxId);
  if (record === null || record.state !== "stopping" || record.revision !== request.revision) return false;
  if (record.actor !== request.actor) return false;
  const { sandboxId, user, thread, generation, reason, createdAt } = record;
  erase(tables, record);
  // Nothing of the thread is left on this engine, so it may begin again on any.
  if (record.purge && user !== null && thread !== null) tables.dropHome(user, thread);
  // The first reason stays: a second end only removes remains.
  if (tables.tombstone(sandboxId) !== null) return true;
  tables.putTombstone({
    sandboxId,
    user,
    thread,
    generation,
    reason,
    by: request.actor,
    createdAt,
    stoppedAt: tables.now(),
  });
  return true;
}
