/**
 * Sessions: which instances are alive (rules 5 and 6).
 *
 * A session has a beat counter and no expiry. No step here judges by a clock: an observer that saw the same beat for a
 * lifetime calls `endDeadSession`, and the transaction checks that the beat is still that one.
 */

import { type Generation, type InstanceId, type LossReason, type SandboxId, SandlotError } from "@sandlot/contract";
import type { BeatAnswer, BeatRequest } from "../store.ts";
import type { Tables } from "../tables.ts";
import { awaitRecovery, isRecovering } from "./engines.ts";
import { dropHold, raiseGeneration } from "./rows.ts";

export function beat(tables: Tables, request: BeatRequest): BeatAnswer {
  const { epoch } = tables.meta();
  const recovering = isRecovering(tables, request.engines);
  if (request.epoch !== null && request.epoch !== epoch) return { kind: "new-epoch", epoch };
  const session = tables.session(request.instance);
  if (session === null && !request.register) return { kind: "unknown-session" };
  if (session === null) refuseIfMarked(tables);
  if (session === null && request.awaitedMs !== undefined) awaitRecovery(tables, request.engines, request.awaitedMs);
  // A late beat must not undo a newer one, least of all heal a hold taken since.
  const now = tables.now();
  if (session !== null && request.beat <= session.beat) return { kind: "ok", epoch, recovering, now, lost: [] };

  const { instance, identity, engines, address, beat: count } = request;
  tables.putSession({ instance, identity, engines, address, beat: count, lastBeatAt: now });
  raiseGeneration(tables, request.generationFloor);
  healReleases(tables, request);
  return { kind: "ok", epoch, recovering, now, lost: findLost(tables, request) };
}

/** A store that was moved, or is only half filled, serves no instance: every other step needs a session. */
function refuseIfMarked(tables: Tables): void {
  const mark = tables.transfer();
  if (mark !== null) throw new SandlotError("store_moved", { state: mark.state, since: mark.since });
}

/** A hold that the instance no longer names is a lost release. A hold requested later stays. */
function healReleases(tables: Tables, request: BeatRequest): void {
  const held = new Map<SandboxId, Generation>(request.held.map((hold) => [hold.sandboxId, hold.generation]));
  for (const record of tables.recordsHeldBy(request.instance)) {
    const hold = record.holders[request.instance];
    if (hold === undefined || hold.seq > request.asOf || held.get(record.sandboxId) === hold.generation) continue;
    dropHold(tables, record, request.instance, tables.now());
  }
}

function findLost(
  tables: Tables,
  request: BeatRequest,
): { sandboxId: SandboxId; generation: Generation; reason: LossReason }[] {
  const lost: { sandboxId: SandboxId; generation: Generation; reason: LossReason }[] = [];
  for (const { sandboxId, generation } of request.held) {
    const reason = lossOf(tables, request.instance, sandboxId, generation);
    if (reason !== null) lost.push({ sandboxId, generation, reason });
  }
  return lost;
}

function lossOf(tables: Tables, instance: InstanceId, sandboxId: SandboxId, generation: Generation): LossReason | null {
  const record = tables.record(sandboxId);
  if (record !== null && record.generation !== generation) return "superseded";
  if (record?.state === "ready" && record.holders[instance]?.generation === generation) return null;
  // The first reason stays: later the remains may be ended once more.
  const reason = tables.tombstone(sandboxId)?.reason ?? record?.reason;
  if (reason === "destroyed" || reason === "restored" || reason === "crashed") return reason;
  return "session-lost";
}

export function endDeadSession(tables: Tables, peer: InstanceId, beatSeen: number): boolean {
  const session = tables.session(peer);
  if (session === null || session.beat !== beatSeen) return false;
  endSession(tables, peer, session.lastBeatAt);
  return true;
}

export function leave(tables: Tables, instance: InstanceId): void {
  if (tables.session(instance) !== null) endSession(tables, instance, tables.now());
}

/** The session and its holds go together, so that a holder always has a session. */
export function endSession(tables: Tables, instance: InstanceId, lastHeard: number): void {
  for (const record of tables.recordsHeldBy(instance)) {
    // A dead holder may have been silent for long before another holder left. A clock that was set back may have made
    // that time one that is still to come.
    dropHold(tables, record, instance, Math.min(Math.max(record.parkedAt ?? 0, lastHeard), tables.now()));
  }
  tables.deleteSession(instance);
}
