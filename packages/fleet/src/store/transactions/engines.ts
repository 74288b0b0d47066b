/**
 * Engines: where a thread lives, who reaches it, and which recoveries it waits for. A store that is not shared has one
 * answer to all of these: here.
 */

import type { Epoch, InstanceId, ThreadId, UserId } from "@sandlot/contract";
import { isAnonymous } from "../record.ts";
import type { Elsewhere, LocateRequest, ThreadPlace } from "../store.ts";
import type { Tables } from "../tables.ts";

export function locate(tables: Tables, { user, thread, instance }: LocateRequest): ThreadPlace {
  const { epoch, recovering } = tables.meta();
  if (!tables.isShared) return { epoch, recovering, elsewhere: null };
  const engine = engineOf(tables, user, thread);
  const elsewhere = engine === null ? null : elsewhereFor(tables, instance, engine);
  return { epoch, recovering: refuseWhileRecovering(tables, instance, user, thread) !== null, elsewhere };
}

/** The engine of a thread's sandbox, or of its last one; `null`: it has no engine yet. */
function engineOf(tables: Tables, user: UserId, thread: ThreadId): string | null {
  if (!tables.isShared) return null;
  return tables.recordOf(user, thread)?.engine ?? tables.homeOf(user, thread);
}

/** Whether an instance may change the state of what an engine has. */
export function reaches(tables: Tables, instance: InstanceId, engine: string): boolean {
  return !tables.isShared || tables.session(instance)?.engines.includes(engine) === true;
}

/** `null`: the instance reaches the engine. */
export function elsewhereFor(tables: Tables, instance: InstanceId, engine: string): Elsewhere | null {
  if (reaches(tables, instance, engine)) return null;
  const there = tables.sessions().filter(({ engines }) => engines.includes(engine));
  const gateways = [...new Set(there.flatMap(({ address }) => address ?? []))];
  return { kind: "elsewhere", engine, gateways, isReachable: there.length > 0 };
}

/** `null`: the thread lives on an engine that the instance reaches, or on none yet. */
export function refuseElsewhere(
  tables: Tables,
  instance: InstanceId,
  user: UserId,
  thread: ThreadId,
): Elsewhere | null {
  const engine = engineOf(tables, user, thread);
  return engine === null ? null : elsewhereFor(tables, instance, engine);
}

/**
 * A thread waits for the recovery of its engine. One that has none yet may turn out to have a sandbox on any engine, so
 * it waits for all that have a session. A thread without a name is always new, and waits for its own engine.
 */
export function refuseWhileRecovering(
  tables: Tables,
  instance: InstanceId,
  user: UserId | null,
  thread: ThreadId | null,
): { readonly kind: "recovering"; readonly epoch: Epoch } | null {
  const isRecovering = waitsFor(tables, instance, user, thread).some((engine) => tables.isRecovering(engine));
  return isRecovering ? { kind: "recovering", epoch: tables.meta().epoch } : null;
}

function waitsFor(
  tables: Tables,
  instance: InstanceId,
  user: UserId | null,
  thread: ThreadId | null,
): readonly string[] {
  if (!tables.isShared) return [""];
  const own = tables.session(instance)?.engines ?? [];
  if (user === null || thread === null || isAnonymous(thread)) return own;
  const engine = engineOf(tables, user, thread);
  return engine === null ? tables.sessions().flatMap(({ engines }) => engines) : [engine];
}
