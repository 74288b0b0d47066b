/**
 * What the fleet can say about its sandboxes: a line for a list, and a whole story for one.
 */

import { type SandboxId, type SandboxSummary, SandlotError } from "@sandlot/contract";
import type { Settings } from "../config/settings.ts";
import type { Explanation } from "../fleet.ts";
import type { Slots } from "../slot/slots.ts";
import { isBlank, isHeld, type SandboxRecord } from "../store/record.ts";
import type { Store } from "../store/store.ts";
import type { EventBus } from "./event-bus.ts";

export function summarize(record: SandboxRecord): SandboxSummary {
  const { sandboxId, user, thread, generation, blueprint, backend, holders, leases, createdAt, parkedAt } = record;
  return {
    ...{ sandboxId, user, thread, generation, blueprint, backend, createdAt, parkedAt },
    state: stateOf(record),
    holders: [...Object.keys(holders), ...Object.keys(leases)],
  };
}

function stateOf(record: SandboxRecord): SandboxSummary["state"] {
  if (record.state !== "ready") return record.state;
  if (isBlank(record)) return "blank";
  return isHeld(record) ? "leased" : "parked";
}

export interface ExplainParts {
  readonly settings: Settings;
  readonly store: Store;
  readonly slots: Slots;
  readonly bus: EventBus;
}

export async function explain(parts: ExplainParts, sandboxId: SandboxId): Promise<Explanation> {
  const record = await parts.store.get(sandboxId);
  return record === null ? explainAbsent(parts, sandboxId) : explainPresent(parts, record);
}

async function explainAbsent({ store, bus }: ExplainParts, sandboxId: SandboxId): Promise<Explanation> {
  const obituary = await store.obituary(sandboxId);
  if (obituary === null) throw new SandlotError("sandbox_not_found", { id: sandboxId });
  const { reason, by, stoppedAt } = obituary;
  return {
    sandboxId,
    state: "absent",
    summary: `It was stopped at ${new Date(stoppedAt).toISOString()} by ${by}: ${reason}.`,
    holders: [],
    stopped: { reason, by, at: stoppedAt },
    ends: null,
    history: bus.historyOf(sandboxId),
  };
}

function explainPresent({ settings, slots, bus }: ExplainParts, record: SandboxRecord): Explanation {
  const { sandboxId, reason, actor } = record;
  const holders = holdersOf(record, slots);
  const ends = endOf(record, settings);
  const history = bus.historyOf(sandboxId);
  const began = history.findLast(({ type }) => type === "sandbox-stopping");
  return {
    sandboxId,
    state: stateOf(record),
    summary: sentence(record, holders, ends),
    holders,
    stopped: reason === null || actor === null ? null : { reason, by: actor, at: began?.at ?? null },
    ends,
    history,
  };
}

/** Other instances' leases are counted there; here they show as one holder each. Our own show one by one. */
function holdersOf(record: SandboxRecord, slots: Slots): Explanation["holders"] {
  const local = [...(slots.byId(record.sandboxId)?.leases ?? [])].filter((lease) => lease.ttlMs === null);
  return [
    ...Object.entries(record.holders).map(([who, hold]) => ({ who, purpose: "instance", since: hold.since })),
    ...Object.entries(record.leases).map(([who, lease]) => ({ who, purpose: lease.purpose, since: lease.acquiredAt })),
    ...local.map((lease) => ({ who: lease.id, purpose: lease.purpose, since: lease.acquiredAt })),
  ];
}

function endOf(record: SandboxRecord, { idleTimeoutMs, maxLifetimeMs }: Settings): Explanation["ends"] {
  if (record.state !== "ready" || isHeld(record)) return null;
  const ends: { reason: "idle" | "expired"; at: number }[] = [];
  if (maxLifetimeMs > 0) ends.push({ reason: "expired", at: record.createdAt + maxLifetimeMs });
  if (idleTimeoutMs > 0 && record.parkedAt !== null && !isBlank(record))
    ends.push({ reason: "idle", at: record.parkedAt + idleTimeoutMs });
  return ends.sort((a, b) => a.at - b.at)[0] ?? null;
}

function sentence(record: SandboxRecord, holders: Explanation["holders"], ends: Explanation["ends"]): string {
  const { thread, actor, reason } = record;
  const until =
    ends === null ? "" : ` It ends at ${new Date(ends.at).toISOString()} (${ends.reason}) unless it is used.`;
  switch (stateOf(record)) {
    case "creating":
      return `It is being made by ${actor} for thread ${thread ?? "(none: it will be a blank)"}.`;
    case "stopping":
      return `It is being stopped by ${actor} (${reason}); the engine has not yet confirmed that nothing is left.`;
    case "blank":
      return `It waits, unused, for any thread of its blueprint.${until}`;
    case "parked":
      return `Nobody holds it; it is kept for thread ${thread}.${until}`;
    case "leased":
      return `It is alive because ${holders.map(({ who, purpose }) => `${who} (${purpose})`).join(", ")} hold it.`;
  }
}
