/**
 * Engines: where a thread lives, who reaches it, and which recoveries it waits for. A store that is not shared has one
 * answer to all of these: here.
 */

import type { Epoch, InstanceId, ThreadId, UserId } from "@sandlot/contract";
import { isAnonymous, type SandboxRecord } from "../record.ts";
import type { Elsewhere, LocateRequest, ThreadPlace } from "../store.ts";
import type { Tables } from "../tables.ts";

type Key = { readonly user: UserId; readonly thread: ThreadId };

export function locate(tables: Tables, { engines, ...key }: LocateRequest): ThreadPlace {
  const { epoch, recovering } = tables.meta();
  if (!tables.isShared) return { epoch, recovering, elsewhere: null, isSettled: true };
  const isWaiting = refuseWhileRecovering(tables, engines, key) !== null;
  const home = tables.homeOf(key.user, key.thread);
  const isSettled = home !== null && engines.includes(home);
  return { epoch, recovering: isWaiting, elsewhere: refuseElsewhere(tables, engines, key), isSettled };
}

/** The engines that an instance reaches, by its session. Not shared: one that stands for all. */
export function enginesOf(tables: Tables, instance: InstanceId): readonly string[] {
  return tables.isShared ? (tables.session(instance)?.engines ?? []) : [""];
}

/** Whether an instance may change the state of what an engine has. */
export function reaches(tables: Tables, instance: InstanceId, engine: string): boolean {
  return !tables.isShared || enginesOf(tables, instance).includes(engine);
}

/** `null`: the thread lives on one of the caller's engines, or on none yet. */
export function refuseElsewhere(tables: Tables, own: readonly string[], key: Key): Elsewhere | null {
  const engine = engineOf(tables, key);
  if (engine === null || own.includes(engine)) return null;
  const there = tables.sessions().filter(({ engines }) => engines.includes(engine));
  const gateways = [...new Set(there.flatMap(({ address }) => address ?? []))];
  return { kind: "elsewhere", engine, gateways, isReachable: there.length > 0 };
}

/** The engine of a thread's sandbox, or of its last one; `null`: it has no engine yet. */
function engineOf(tables: Tables, { user, thread }: Key): string | null {
  if (!tables.isShared) return null;
  return tables.recordOf(user, thread)?.engine ?? tables.homeOf(user, thread);
}

/** Whether a thread may have a sandbox on this engine: it lives there, or nowhere yet. */
export function mayLiveOn(tables: Tables, user: UserId, thread: ThreadId, engine: string): boolean {
  const home = tables.homeOf(user, thread);
  return home === null || home === engine;
}

/** A thread that had a sandbox stays with its engine until it is purged. One without a name never comes back. */
export function settle(tables: Tables, { user, thread, engine }: SandboxRecord): void {
  if (user !== null && thread !== null && !isAnonymous(thread)) tables.putHome(user, thread, engine);
}

/** Whether the present epoch does not know yet what one of these engines has. */
export function isRecovering(tables: Tables, engines: readonly string[]): boolean {
  return tables.isShared ? engines.some((engine) => tables.isRecovering(engine)) : tables.isRecovering("");
}

/**
 * A thread waits for the recovery of its engine. One that has none yet may turn out to have a sandbox on any engine, so
 * it waits for all that have a session, each for a limited time: an engine that cannot recover is like one without a
 * session. What has no thread, or none with a name, is new and waits for its own engine.
 */
export function refuseWhileRecovering(
  tables: Tables,
  own: readonly string[],
  key: Key | null,
): { readonly kind: "recovering"; readonly epoch: Epoch } | null {
  const isNew = key === null || isAnonymous(key.thread);
  const waitsFor = !tables.isShared || isNew ? own : enginesThatMayHave(tables, own, key);
  return isRecovering(tables, waitsFor) ? { kind: "recovering", epoch: tables.meta().epoch } : null;
}

function enginesThatMayHave(tables: Tables, own: readonly string[], key: Key): readonly string[] {
  const engine = engineOf(tables, key);
  if (engine !== null) return [engine];
  const others = tables.sessions().flatMap(({ engines }) => engines);
  return [...own, ...others.filter((other) => !own.includes(other) && isAwaited(tables, other))];
}

function isAwaited(tables: Tables, engine: string): boolean {
  const awaited = tables.isRecovering(engine) ? tables.awaited(engine) : null;
  // A clock that was set back does not prolong the wait by more than its own length.
  return awaited === null || Math.abs(tables.now() - awaited.since) < awaited.forMs;
}

/** Called with each registration. The first one in an epoch decides how long its engines are waited for. */
export function awaitRecovery(tables: Tables, engines: readonly string[], forMs: number): void {
  if (!tables.isShared) return;
  for (const engine of engines)
    if (tables.isRecovering(engine) && tables.awaited(engine) === null)
      tables.putAwaited(engine, { since: tables.now(), forMs });
}
