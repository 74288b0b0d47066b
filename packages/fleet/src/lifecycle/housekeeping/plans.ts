/**
 * Policy as pure functions of the known state and the time. The loops carry the plans out; the store checks each step
 * again, so an outdated plan has no effect.
 */

import type { BlueprintHash, StopReason } from "@sandlot/contract";
import type { Activity, EngineObject } from "../../backend/backend.ts";
import type { Settings } from "../../config/settings.ts";
import { isAnonymous, isBlank, isParked, type SandboxRecord } from "../../store/record.ts";

export interface Expiry {
  readonly record: SandboxRecord;
  readonly reason: StopReason;
  /** Whether work inside the sandbox postpones the end. */
  readonly unlessBusy: boolean;
}

/** The sandboxes that are due. `now` is the store's clock. */
export function planExpiry(
  records: readonly SandboxRecord[],
  { idleTimeoutMs, maxLifetimeMs }: Pick<Settings, "idleTimeoutMs" | "maxLifetimeMs">,
  now: number,
): readonly Expiry[] {
  const due: Expiry[] = [];
  for (const record of records) {
    if (!isBlank(record) && !isParked(record)) continue;
    const parkedAt = record.parkedAt ?? record.createdAt;
    if (isAnonymous(record.thread)) due.push({ record, reason: "released", unlessBusy: false });
    else if (maxLifetimeMs > 0 && now - record.createdAt >= maxLifetimeMs)
      due.push({ record, reason: "expired", unlessBusy: false });
    else if (!isBlank(record) && idleTimeoutMs > 0 && now - parkedAt >= idleTimeoutMs)
      due.push({ record, reason: "idle", unlessBusy: true });
  }
  return due;
}

/** What keeps a parked sandbox from being idle. `docs/LIFECYCLE.md` has the table; each of its rows is a test. */
export function isBusy(
  activity: Activity,
  { cpuShareMin, previewQuietMs }: Settings["activity"],
  now: number,
): boolean {
  if (activity.runningExecs > 0 || activity.openTerminals > 0) return true;
  if (activity.previewTrafficAt !== null && now - activity.previewTrafficAt < previewQuietMs) return true;
  return activity.cpuShare >= cpuShareMin;
}

export interface PoolPlan {
  readonly create: readonly string[];
  readonly stop: readonly { readonly record: SandboxRecord; readonly reason: StopReason }[];
}

/**
 * How the blanks of this instance's engine should change. `records` are those of the engine, `taken` counts all of the
 * fleet. `mayEndStale` tells whether a blank that no configured blueprint matches may end now:
 * during a rolling update two configurations run side by side, and should not end each other's blanks at once.
 * `outdated` are those whose blueprint is configured, and that would be made otherwise now: they end like stale ones.
 */
export function planPool(
  records: readonly SandboxRecord[],
  { pool, blueprints, limits }: Pick<Settings, "pool" | "blueprints" | "limits">,
  mayEndStale: (record: SandboxRecord) => boolean,
  taken = records.length,
  outdated: ReadonlySet<SandboxRecord> = new Set(),
): PoolPlan {
  const plan = { create: [] as string[], stop: [] as { record: SandboxRecord; reason: StopReason }[] };
  const targets = poolTargets(pool, blueprints);
  const { max, maxPerEngine } = limits;
  let room = Math.min(max - taken, maxPerEngine === 0 ? max : maxPerEngine - records.length);
  for (const [hash, { name, count }] of targets) {
    const ready = blanksOf(records, hash).filter((record) => !outdated.has(record));
    const coming = records.filter(
      ({ state, thread, blueprintHash }) => state === "creating" && thread === null && blueprintHash === hash,
    );
    const missing = Math.min(count - ready.length - coming.length, room);
    for (let made = 0; made < missing; made += 1) plan.create.push(name);
    room -= Math.max(0, missing);
    for (const record of ready.slice(count)) plan.stop.push({ record, reason: "surplus" });
  }
  for (const record of records) {
    const stale = isBlank(record) && (!targets.has(record.blueprintHash) || outdated.has(record));
    if (stale && mayEndStale(record)) plan.stop.push({ record, reason: "stale-blueprint" });
  }
  return plan;
}

/** Two names may stand for one blueprint: its blanks then serve both, and their numbers add up. */
function poolTargets(
  pool: Settings["pool"],
  blueprints: Settings["blueprints"],
): ReadonlyMap<BlueprintHash, { readonly name: string; readonly count: number }> {
  const targets = new Map<BlueprintHash, { name: string; count: number }>();
  for (const [name, count] of Object.entries(pool)) {
    const hash = blueprints[name]?.hash;
    if (hash !== undefined) targets.set(hash, { name, count: (targets.get(hash)?.count ?? 0) + count });
  }
  return targets;
}

/** Oldest first, so that all instances that count a surplus pick the same blanks. */
function blanksOf(records: readonly SandboxRecord[], hash: BlueprintHash): readonly SandboxRecord[] {
  return records
    .filter((record) => isBlank(record) && record.blueprintHash === hash)
    .sort((a, b) => a.createdAt - b.createdAt || (a.sandboxId < b.sandboxId ? -1 : 1));
}

export interface ReconcilePlan {
  /** Objects without a record that a newer sandbox of the thread has replaced: they end at once. */
  readonly superseded: readonly EngineObject[];
  /** Objects without a record. */
  readonly unknown: readonly EngineObject[];
  /** Ready records whose object is dead or missing in the engine's list. Not a proof: ask the engine about each. */
  readonly missing: readonly SandboxRecord[];
}

/** Read `records` after `objects`: otherwise an object whose record was made in between looks unknown. */
export function planReconcile(
  objects: readonly EngineObject[],
  records: readonly SandboxRecord[],
  threadKey: (record: SandboxRecord) => string | null,
): ReconcilePlan {
  const known = new Map(records.map((record) => [record.sandboxId, record]));
  const newest = new Map<string, number>();
  for (const record of records) {
    const key = threadKey(record);
    if (key !== null) newest.set(key, Math.max(newest.get(key) ?? 0, record.generation));
  }
  const alive = new Set(objects.filter((object) => object.liveness !== "dead").map((object) => object.ref));
  const unknown = objects.filter((object) => !known.has(object.labels.sandboxId));
  const isSuperseded = ({ labels }: EngineObject) =>
    labels.threadKey !== null && labels.generation < (newest.get(labels.threadKey) ?? 0);
  return {
    superseded: unknown.filter(isSuperseded),
    unknown: unknown.filter((object) => !isSuperseded(object)),
    missing: records.filter((record) => record.state === "ready" && record.ref !== null && !alive.has(record.ref)),
  };
}
