/** Explains one sandbox: why it is alive, and what will end it. */

import {
  type InstanceId,
  isoTime,
  parseThreadId,
  type SandboxId,
  type SandboxState,
  SandlotError,
  type UserId,
} from "@sandlot/contract";
import type { Backend } from "../backend/backend.ts";
import { parseUser } from "../config/call-options.ts";
import type { Settings } from "../config/settings.ts";
import type { ExplainOptions, Explanation, ThreadKeyInput } from "../fleet.ts";
import type { Slots } from "../lifecycle/hold/slots.ts";
import type { EventBus } from "../observe/event-bus.ts";
import { isBlank, isHeld, isParked, type SandboxRecord, type Tombstone } from "../store/record.ts";
import type { Session, Store } from "../store/store.ts";
import { within } from "../world/waiting.ts";
import type { World } from "../world/world.ts";
import { stateOf } from "./summary.ts";

export interface ExplainParts {
  readonly settings: Settings;
  readonly store: Store;
  readonly slots: Slots;
  readonly bus: EventBus;
  readonly backend: Backend;
  readonly world: World;
  readonly instance: InstanceId;
  /** Whether this instance reaches the engine that has the sandbox. */
  readonly isOurs: (record: SandboxRecord) => boolean;
  /** Aborted when the fleet closes. */
  readonly ending: AbortSignal;
}

/** Whose sandboxes may be explained, and whether this process stays. */
interface Asked {
  readonly user: UserId | null;
  readonly leaving: boolean;
}

/** How long to wait for the engine's liveness of a parked sandbox. Unknown counts as running. */
const PROBE_PATIENCE_MS = 2_000;

export async function explain(
  parts: ExplainParts,
  asked: string | ThreadKeyInput,
  { user, leaving = false }: ExplainOptions = {},
): Promise<Explanation> {
  const about: Asked = { user: user === undefined ? null : parseUser(user), leaving };
  const found = typeof asked === "string" ? await byId(parts, asked, about) : await byThread(parts, asked, about);
  return "state" in found ? explainPresent(parts, found, about) : explainAbsent(parts, found);
}

async function byThread({ store }: ExplainParts, { user, thread }: ThreadKeyInput, asked: Asked) {
  const key = { user: parseUser(user), thread: parseThreadId(thread) };
  const isTheirs = asked.user === null || asked.user === key.user;
  const found = isTheirs ? ((await store.find(key.user, key.thread)) ?? (await store.tombstones(key))[0]) : undefined;
  if (found === undefined) throw new SandlotError("thread_not_found", { thread: key.thread });
  return found;
}

/** The whole id, or a unique prefix. */
export async function byId(
  { store }: Pick<ExplainParts, "store">,
  id: string,
  { user }: Pick<Asked, "user">,
): Promise<SandboxRecord | Tombstone> {
  const isTheirs = (one: SandboxRecord | Tombstone) => user === null || one.user === user;
  const exact = (await store.get(id as SandboxId)) ?? (await store.tombstone(id as SandboxId));
  if (exact !== null && isTheirs(exact)) return exact;
  const living = (await store.list()).filter(({ sandboxId }) => sandboxId.startsWith(id));
  const ended = id === "" ? [] : await store.tombstones({ idPrefix: id });
  const [first, ...others] = [...living, ...ended].filter(isTheirs);
  if (first === undefined) throw new SandlotError("sandbox_not_found", { id });
  if (others.length === 0) return first;
  const names = [first, ...others].map(({ sandboxId }) => sandboxId).slice(0, 5);
  throw new SandlotError("invalid_request", {
    field: "sandbox",
    problem: `${id} is the beginning of ${names.join(", ")}`,
  });
}

function explainAbsent(
  { bus }: ExplainParts,
  { sandboxId, user, thread, reason, by, stoppedAt }: Tombstone,
): Explanation {
  return {
    ...{ sandboxId, user, thread },
    state: "absent",
    summary: `It was stopped at ${isoTime(stoppedAt)} by ${by}: ${reason}.`,
    holders: [],
    stopped: { reason, by, at: stoppedAt },
    ends: null,
    history: bus.historyOf(sandboxId),
  };
}

async function explainPresent(parts: ExplainParts, record: SandboxRecord, { leaving }: Asked): Promise<Explanation> {
  const { sandboxId, user, thread, reason, actor, engine } = record;
  const holders = holdersOf(record, parts.slots);
  const isGone = isParked(record) && (await hasEnded(parts, record));
  const ends = isGone ? null : endOf(record, parts.settings, leaving ? await orphanedAt(parts) : null);
  const history = parts.bus.historyOf(sandboxId);
  const began = history.findLast(({ type }) => type === "sandbox-stopping");
  return {
    ...{ sandboxId, user, thread },
    ...(engine === "" ? {} : { engine }),
    state: stateOf(record),
    summary: isGone
      ? `It has ended by itself; the files of thread ${thread} are kept.`
      : `${sentence(record, holders, ends)}${await whatEngineSays(parts, record)}`,
    holders,
    stopped:
      record.state !== "stopping" || reason === null || actor === null
        ? null
        : { reason, by: actor, at: began?.at ?? null },
    ends,
    history,
  };
}

/** What keeps its stop waiting, in the words of the engine that has it. */
async function whatEngineSays(
  { backend, world, ending, isOurs }: ExplainParts,
  record: SandboxRecord,
): Promise<string> {
  const { ref, engine, state } = record;
  if (!isOurs(record)) return ` It is on engine ${engine}, which this process does not reach.`;
  if (state !== "stopping" || ref === null || backend.explain === undefined) return "";
  const late = () => new Error("no answer");
  const ask = async (signal: AbortSignal) => (await backend.explain?.(ref, signal)) ?? null;
  const said = await within(world, PROBE_PATIENCE_MS, ending, late, ask).catch(() => null);
  return said === null ? "" : ` ${said}`;
}

/** The record still exists, but the engine says that nothing runs. */
async function hasEnded({ backend, world, ending, isOurs }: ExplainParts, record: SandboxRecord): Promise<boolean> {
  const { ref } = record;
  if (ref === null || !isOurs(record)) return false;
  const late = () => new Error("no answer");
  const probe = (signal: AbortSignal) => backend.probe(ref, signal);
  return (await within(world, PROBE_PATIENCE_MS, ending, late, probe).catch(() => "unknown")) === "dead";
}

/** When a sandbox ends after this process leaves; `null` if another process of the fleet remains. */
async function orphanedAt({ settings, store, world, instance, backend }: ExplainParts): Promise<number | null> {
  const { orphanTimeoutMs } = settings;
  if (backend.endsUnrenewed !== true) return null;
  const isHere = ({ engines }: Session) => !store.isShared || engines.includes(backend.engineId);
  const others = (await store.sessions()).filter((session) => session.instance !== instance && isHere(session));
  return others.length === 0 ? world.wallMs() + orphanTimeoutMs : null;
}

/** Another instance counts its own leases, so it is one holder here. Our own leases are listed one by one. */
function holdersOf(record: SandboxRecord, slots: Slots): Explanation["holders"] {
  const local = [...(slots.byId(record.sandboxId)?.leases ?? [])].filter((lease) => lease.ttlMs === null);
  return [
    ...Object.entries(record.holders).map(([who, hold]) => ({ who, purpose: "instance", since: hold.since })),
    ...Object.entries(record.leases).map(([who, lease]) => ({ who, purpose: lease.purpose, since: lease.acquiredAt })),
    ...local.map((lease) => ({ who: lease.id, purpose: lease.purpose, since: lease.acquiredAt })),
  ];
}

function endOf(
  record: SandboxRecord,
  { idleTimeoutMs, maxLifetimeMs }: Settings,
  orphaned: number | null,
): Explanation["ends"] {
  if (record.state !== "ready" || isHeld(record)) return null;
  const ends: { reason: "idle" | "expired" | "orphaned"; at: number }[] = [];
  if (orphaned !== null) ends.push({ reason: "orphaned", at: orphaned });
  if (maxLifetimeMs > 0) ends.push({ reason: "expired", at: record.createdAt + maxLifetimeMs });
  if (idleTimeoutMs > 0 && record.parkedAt !== null && !isBlank(record))
    ends.push({ reason: "idle", at: record.parkedAt + idleTimeoutMs });
  return ends.sort((a, b) => a.at - b.at)[0] ?? null;
}

function sentence(record: SandboxRecord, holders: Explanation["holders"], ends: Explanation["ends"]): string {
  const { thread, actor, reason } = record;
  const why = ends?.reason === "orphaned" ? "orphaned: no other Sandlot process runs" : ends?.reason;
  const until = ends === null ? "" : ` It ends at ${isoTime(ends.at)} (${why}) unless it is used.`;
  const state: SandboxState = stateOf(record);
  switch (state) {
    case "creating":
      return (
        `It is being made by ${actor} for thread ${thread ?? "(none: it will be a blank)"}` +
        (reason === null ? "." : `, and ends as soon as it is made (${reason}).`)
      );
    case "stopping":
      return `It is being stopped by ${actor} (${reason}); the engine has not yet confirmed that nothing is left.`;
    case "blank":
      return `It waits, unused, for any thread of its blueprint.${until}`;
    case "parked":
      return `It is not in use; it is kept for thread ${thread}.${until}`;
    case "leased":
      return `It is alive because ${holders.map(({ who, purpose }) => `${who} (${purpose})`).join(", ")} hold it.`;
  }
}
