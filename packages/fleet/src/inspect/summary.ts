/** A sandbox as a line of a list. */

import type { SandboxState, SandboxSummary } from "@sandlot/contract";
import { isBlank, isHeld, type SandboxRecord } from "../store/record.ts";

export function summarize(record: SandboxRecord): SandboxSummary {
  const { sandboxId, user, thread, generation, blueprint, backend, engine, holders, leases } = record;
  const { createdAt } = record;
  const parkedAt = isHeld(record) ? null : record.parkedAt;
  return {
    ...{ sandboxId, user, thread, generation, blueprint, backend, createdAt, parkedAt },
    ...(engine === "" ? {} : { engine }),
    state: stateOf(record),
    holders: [...Object.keys(holders), ...Object.keys(leases)],
  };
}

export function stateOf(record: SandboxRecord): SandboxState {
  if (record.state !== "ready") return record.state;
  if (isBlank(record)) return "blank";
  return isHeld(record) ? "leased" : "parked";
}
