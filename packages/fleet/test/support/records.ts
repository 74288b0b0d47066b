/**
 * Records and engine objects for tests of pure functions: made by hand, or drawn by fast-check.
 */

import type { BlueprintHash, EngineRef, FleetId, Generation, SandboxId, Token } from "@sandlot/contract";
import fc from "fast-check";
import type { EngineObject } from "../../src/backend/backend.ts";
import type { SandboxRecord } from "../../src/store/record.ts";

let count = 0;

type Loose = { readonly [Key in keyof SandboxRecord]?: unknown };

/** A parked sandbox of thread `t`, with the given fields replaced. */
export function recordWith(given: Loose = {}): SandboxRecord {
  count += 1;
  const record: SandboxRecord = {
    sandboxId: `s${count}` as SandboxId,
    user: "u" as never,
    thread: "t" as never,
    revision: 1,
    generation: 1 as Generation,
    token: "secret" as Token,
    state: "ready",
    actor: null,
    backend: "memory",
    engine: "engine",
    ref: `ref-${count}` as EngineRef,
    blueprint: "default",
    blueprintHash: "hash" as BlueprintHash,
    holders: {},
    leases: {},
    place: "home",
    boundFrom: null,
    arrival: null,
    createdAt: 0,
    parkedAt: 0,
    purge: false,
    reason: null,
  };
  return { ...record, ...given } as SandboxRecord;
}

export const HELD = { holders: { i: { generation: 1, seq: 1, since: 0 } }, parkedAt: null } as const;
export const LEASED = {
  leases: { l: { generation: 1, purpose: "p", holder: "h", acquiredAt: 0, ttlMs: 1, beat: 1 } },
  parkedAt: null,
} as const;
export const BLANK = { user: null, thread: null } as const;

/** Any record, in any state. Times are drawn around `times`, each with its neighbours. */
export function anyRecord(times: readonly number[]): fc.Arbitrary<SandboxRecord> {
  const time = fc.constantFrom(...times.flatMap((at) => [at - 1, at, at + 1]));
  return fc
    .record({
      kind: fc.constantFrom("parked", "held", "leased", "blank", "creating", "creating blank", "stopping", "anonymous"),
      user: fc.constantFrom("alice", "bob"),
      hash: fc.constantFrom("hash-a", "hash-b", "hash-old"),
      createdAt: time,
      parkedAt: time,
    })
    .map(({ kind, user, hash, createdAt, parkedAt }) =>
      recordWith({ user, blueprintHash: hash, createdAt, parkedAt, ...shapeOf(kind) }),
    );
}

function shapeOf(kind: string): Loose {
  switch (kind) {
    case "held":
      return HELD;
    case "leased":
      return LEASED;
    case "blank":
      return BLANK;
    case "creating":
      return { state: "creating", actor: "i", ref: null, parkedAt: null };
    case "creating blank":
      return { ...BLANK, state: "creating", actor: "i", ref: null, parkedAt: null };
    case "stopping":
      return { state: "stopping", actor: "i", reason: "idle", parkedAt: null };
    case "anonymous":
      return { thread: "~0123" };
    default:
      return {};
  }
}

export function objectOf(record: SandboxRecord, given: Partial<EngineObject["labels"]> = {}): EngineObject {
  const { sandboxId, generation, blueprintHash, place } = record;
  const labels = { fleet: "f" as FleetId, sandboxId, generation, threadKey: null, blueprintHash, ...given };
  return { ref: record.ref ?? (`made-${sandboxId}` as EngineRef), labels, liveness: "alive", place };
}
