/**
 * absent → creating → ready, holding what is ready, and binding a blank (rules 1, 2, 4, 5, 13).
 */

import type { Generation, InstanceId, SandboxId, ThreadId, UserId } from "@sandlot/contract";
import {
  type Arrival,
  type CreatingRecord,
  isBlank,
  isHeld,
  type ReadyRecord,
  type SandboxRecord,
  type State,
} from "../record.ts";
import type {
  BindAnswer,
  BindRequest,
  Elsewhere,
  HoldAnswer,
  HoldRequest,
  NewRecord,
  PublishRequest,
  Refusal,
  ReserveAnswer,
  ReserveRequest,
  TakeAnswer,
  TakeRequest,
  UnholdRequest,
} from "../store.ts";
import type { Tables } from "../tables.ts";
import { enginesOf, mayLiveOn, reaches, refuseElsewhere, refuseWhileRecovering, settle } from "./engines.ts";
import { change, dropHold, hasSession, insert, move, parkedAtOfHeld, refuseIfFull } from "./rows.ts";

/** Which instances may make or take something new. Without a thread it is new, or held already. */
function refuseIfShut(
  tables: Tables,
  instance: InstanceId,
  key: ReserveRequest["key"],
): Elsewhere | Exclude<Refusal, { kind: "full" }> | null {
  if (!hasSession(tables, instance)) return { kind: "unknown-session" };
  const own = enginesOf(tables, instance);
  const elsewhere = key === null ? null : refuseElsewhere(tables, own, key);
  return elsewhere ?? refuseWhileRecovering(tables, own, key);
}

/** A new record; every field that neither a request nor its state decides has its first value here. */
export function firstRecord<S extends State, Actor extends InstanceId | null>(
  tables: Tables,
  request: NewRecord &
    Pick<SandboxRecord, "user" | "thread" | "generation"> & { readonly state: S; readonly actor: Actor },
) {
  const { sandboxId, token, backend, engine, blueprint, blueprintHash, user, thread, generation, state, actor } =
    request;
  return {
    ...{ sandboxId, token, backend, engine, blueprint, blueprintHash, user, thread, generation, state, actor },
    revision: 1,
    ref: null,
    holders: {},
    leases: {},
    place: "home",
    arrival: null,
    boundFrom: null,
    createdAt: tables.now(),
    parkedAt: null,
    purge: false,
    reason: null,
  } as const;
}

export function reserve(tables: Tables, request: ReserveRequest): ReserveAnswer {
  const user = request.key?.user ?? null;
  const thread = request.key?.thread ?? null;
  const shut = refuseIfShut(tables, request.actor, request.key);
  if (shut !== null) return shut;
  const existing = user === null || thread === null ? null : tables.recordOf(user, thread);
  if (existing !== null) return { kind: "exists", record: existing };
  return reserveFor(tables, request, user, thread);
}

/** The key is free, or there is none. */
function reserveFor(
  tables: Tables,
  request: Omit<ReserveRequest, "key">,
  user: UserId | null,
  thread: ThreadId | null,
): Extract<ReserveAnswer, { kind: "reserved" | "full" }> {
  const full = refuseIfFull(tables, request.limits, user, request.engine);
  if (full !== null) return full;
  const generation = nextGeneration(tables);
  const record: CreatingRecord = firstRecord(tables, { ...request, user, thread, generation, state: "creating" });
  return { kind: "reserved", record: insert(tables, record) };
}

/**
 * A generation is given once: the same step advances the counter. It is not behind the store's clock, so that a store
 * that was lost, or has lost its last writes, does not give one again.
 */
export function nextGeneration(tables: Tables): Generation {
  const generation = Math.max(tables.generation(), tables.now()) + 1;
  tables.putGeneration(generation);
  return generation as Generation;
}

/** The first sandbox that is ready settles its thread. One that could not be made ties it to no engine. */
export function publish(tables: Tables, request: PublishRequest): ReadyRecord | null {
  const record = tables.record(request.sandboxId);
  if (record === null || record.state !== "creating" || record.revision !== request.revision) return null;
  if (record.actor !== request.actor || !hasSession(tables, request.actor)) return null;
  const now = tables.now();
  const { ref, place, arrival, actor, hold } = request;
  const holders = hold === null ? {} : { [actor]: { generation: record.generation, seq: hold, since: now } };
  const parkedAt = hold === null ? now : null;
  const ready = { ...{ ref, place, arrival, holders, leases: {}, parkedAt }, purge: false, reason: null } as const;
  settle(tables, record);
  return move<ReadyRecord>(tables, record, { ...record, ...ready, state: "ready", actor: null });
}

export function hold(tables: Tables, request: HoldRequest): HoldAnswer {
  const shut = refuseIfShut(tables, request.instance, null);
  if (shut !== null && shut.kind !== "elsewhere") return shut;
  const record = tables.record(request.sandboxId);
  if (record === null || record.state !== "ready" || record.generation !== request.generation)
    return { kind: "gone", record };
  return { kind: "held", record: addHold(tables, record, request) };
}

export function take(tables: Tables, request: TakeRequest): TakeAnswer {
  const { user, thread, instance, seq, orReserve } = request;
  const shut = refuseIfShut(tables, instance, { user, thread });
  if (shut !== null) return shut;
  const record = tables.recordOf(user, thread);
  if (record?.state === "ready") {
    const { sandboxId, generation } = record;
    return { kind: "held", record: addHold(tables, record, { sandboxId, generation, instance, seq }) };
  }
  if (record !== null) return { kind: "other", record };
  const blank = pickBlank(tables, request);
  if (blank !== null) return { kind: "blank", record: blank, generation: nextGeneration(tables) };
  return orReserve === null
    ? { kind: "other", record: null }
    : reserveFor(tables, { ...orReserve, actor: instance }, user, thread);
}

/** Concurrent callers of an instance have consecutive counters, so each gets another blank. */
function pickBlank(tables: Tables, { blank, seq, instance }: TakeRequest): ReadyRecord | null {
  if (blank === null) return null;
  const reached = enginesOf(tables, instance).flatMap((engine) => tables.blankIds(blank.blueprintHash, engine));
  const free = reached.filter((id) => !blank.except.includes(id));
  const picked = free[seq % free.length];
  const record = picked === undefined ? null : tables.record(picked);
  return record?.state === "ready" ? record : null;
}

export function addHold(tables: Tables, record: ReadyRecord, request: HoldRequest): ReadyRecord {
  const { instance, generation } = request;
  const before = record.holders[instance];
  // A request that a later one of the same instance has overtaken must not make that one look older.
  const seq = Math.max(before?.seq ?? 0, request.seq);
  const since = before?.since ?? tables.now();
  return change(tables, record, {
    holders: { ...record.holders, [instance]: { generation, seq, since } },
    parkedAt: parkedAtOfHeld(record),
  });
}

export function unhold(tables: Tables, request: UnholdRequest): SandboxRecord | null {
  const record = tables.record(request.sandboxId);
  const held = record?.holders[request.instance];
  if (record?.state !== "ready" || held === undefined) return record;
  if (held.generation !== request.generation || held.seq > request.seq) return record;
  // The holder of a lease has reached the daemon under the new credentials, whether or not that was confirmed.
  const left = request.used ? { arrival: null, boundFrom: null } : {};
  return dropHold(tables, record, request.instance, tables.now(), left);
}

export function bind(tables: Tables, request: BindRequest): BindAnswer {
  const { sandboxId, revision, user, thread, generation, token, instance, seq, maxPerUser } = request;
  const shut = refuseIfShut(tables, instance, { user, thread });
  if (shut !== null) return shut;
  const existing = tables.recordOf(user, thread);
  if (existing !== null) return { kind: "exists", record: existing };
  const blank = tables.record(sandboxId);
  if (blank?.state !== "ready" || blank.revision !== revision || !isBlank(blank) || isHeld(blank))
    return { kind: "taken" };
  if (!reaches(tables, instance, blank.engine) || !mayLiveOn(tables, user, thread, blank.engine))
    return { kind: "taken" };
  // The generation was given before this transaction: the thread may have had, and lost, a later one since.
  if ((tables.tombstoneOf(user, thread)?.generation ?? 0) > generation) return { kind: "taken" };
  const full = refuseIfFull(tables, { max: null, maxPerUser, maxPerEngine: null }, user, blank.engine);
  if (full !== null) return full;
  const holders = { [instance]: { generation, seq, since: tables.now() } };
  const boundFrom = { generation: blank.generation, token: blank.token };
  const record = change(tables, blank, { user, thread, generation, token, holders, boundFrom, parkedAt: null });
  settle(tables, record);
  return { kind: "bound", record };
}

export function confirmBound(tables: Tables, sandboxId: SandboxId, generation: Generation, arrival: Arrival): void {
  const record = tables.record(sandboxId);
  if (record?.state !== "ready" || record.generation !== generation || record.boundFrom === null) return;
  change(tables, record, { boundFrom: null, arrival });
}
