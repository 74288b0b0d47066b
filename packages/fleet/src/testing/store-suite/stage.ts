/**
 * The test stage: a fresh store, and helpers that bring sandboxes into the state that a case begins with. A helper
 * fails when the store does not answer as it should, so that a case states only its own subject.
 */

import type {
  BlueprintHash,
  EngineRef,
  Generation,
  InstanceId,
  LeaseId,
  SandboxId,
  ThreadId,
  Token,
  UserId,
} from "@sandlot/contract";
import type { CreatingRecord, ReadyRecord, SandboxRecord, StoppingRecord } from "../../store/record.ts";
import type {
  BeatAnswer,
  BeatRequest,
  HoldRequest,
  Limits,
  NewRecord,
  ReserveAnswer,
  ReserveRequest,
  StopRequest,
  Store,
  TakeRequest,
  UnholdRequest,
} from "../../store/store.ts";
import type { ProcessIdentity } from "../../world/world.ts";

export interface StoreHarness {
  readonly store: Store;
  /** Another connection to the same data, as in another process. */
  second(): Promise<Store>;
  /** Loses everything. When it resolves, `store` has noticed or will with its next beat. */
  empty(): Promise<void>;
  /** Begins a new epoch, as a server that noticed lost writes. Absent: `empty` is the only way to one. */
  beginEpoch?(): Promise<void>;
  dispose(): Promise<void>;
}

/** The parts of a test framework that the suite needs. Vitest, Jest and Bun have them. */
export interface SuiteTools {
  describe(name: string, body: () => void): unknown;
  it(name: string, body: () => Promise<void>): unknown;
  readonly expect: Expect;
}

interface Expect {
  (value: unknown, message?: string): Matchers;
  /** For `toEqual`: any object with exactly these values in these fields. `toMatchObject` takes `{}` for any object. */
  objectContaining(expected: object): unknown;
}

interface Matchers {
  toBe(expected: unknown): void;
  toEqual(expected: unknown): void;
  toMatchObject(expected: object): void;
  toBeGreaterThan(expected: number): void;
  toBeGreaterThanOrEqual(expected: number): void;
  toBeLessThanOrEqual(expected: number): void;
  toContain(part: unknown): void;
  toMatch(pattern: RegExp): void;
}

export interface StoreCase {
  readonly name: string;
  /** Every store begins in recovery; most cases begin after it. */
  readonly begins?: "open" | "recovering";
  run(stage: Stage): Promise<void>;
}

export const NO_LIMITS: Limits = { max: null, maxPerUser: null, maxPerEngine: null };
export const UNKNOWN_SANDBOX = "sandbox-nobody-made" as SandboxId;
export const USER = "user" as UserId;
/** The engine that every instance of the stage reaches, unless a case says otherwise. */
export const ENGINE = "engine-here";
const HASH = "hash-of-default" as BlueprintHash;

export class Stage {
  readonly store: Store;
  readonly expect: SuiteTools["expect"];
  readonly #harness: StoreHarness;
  #made = 0;

  constructor(harness: StoreHarness, expect: SuiteTools["expect"]) {
    this.#harness = harness;
    this.store = harness.store;
    this.expect = expect;
  }

  second(): Promise<Store> {
    return this.#harness.second();
  }

  empty(): Promise<void> {
    return this.#harness.empty();
  }

  /** Loses everything but what a shared store keeps over epochs. */
  beginEpoch(): Promise<void> {
    return this.#harness.beginEpoch?.() ?? this.#harness.empty();
  }

  async endRecovery(engine = ENGINE): Promise<void> {
    await this.store.endRecovery((await this.store.meta(engine)).epoch, engine);
  }

  // Sessions.

  async join(name: string): Promise<InstanceId> {
    const answer = await this.beat(name, 1, { register: true });
    this.expect(answer.kind).toBe("ok");
    return name as InstanceId;
  }

  beat(
    instance: string,
    beat: number,
    more: Partial<BeatRequest> = {},
    store: Store = this.store,
  ): Promise<BeatAnswer> {
    return store.beat({
      instance: instance as InstanceId,
      identity: identityOf(instance),
      engines: [ENGINE],
      address: null,
      beat,
      epoch: null,
      register: false,
      held: [],
      asOf: 0,
      generationFloor: 0,
      ...more,
    });
  }

  /** Ends a session like an observer that judged it dead. */
  async endDeadSession(instance: InstanceId): Promise<void> {
    const session = (await this.store.sessions()).find((one) => one.instance === instance);
    this.expect(await this.store.endDeadSession(instance, session?.beat ?? -1)).toBe(true);
  }

  // Sandboxes.

  newRecord(more: Partial<NewRecord> = {}): NewRecord {
    this.#made += 1;
    return {
      sandboxId: `sandbox-${this.#made}` as SandboxId,
      token: `token-${this.#made}` as Token,
      backend: "memory",
      engine: ENGINE,
      blueprint: "default",
      blueprintHash: HASH,
      ...more,
    };
  }

  tryReserve(
    actor: InstanceId,
    thread: string | null,
    more: Partial<ReserveRequest> = {},
    store = this.store,
  ): Promise<ReserveAnswer> {
    const key = thread === null ? null : { user: USER, thread: thread as ThreadId };
    return store.reserve({ ...this.newRecord(), key, actor, limits: NO_LIMITS, ...more });
  }

  async creating(
    actor: InstanceId,
    thread: string | null,
    more: Partial<ReserveRequest> = {},
  ): Promise<CreatingRecord> {
    const answer = await this.tryReserve(actor, thread, more);
    this.expect(answer.kind).toBe("reserved");
    if (answer.kind !== "reserved") throw new Error(`reserve answered ${answer.kind}`);
    return answer.record;
  }

  /** Ready and held by its maker if `hold` is a counter, otherwise parked; blank without a thread. */
  async ready(
    actor: InstanceId,
    thread: string | null,
    hold: number | null = null,
    more: Partial<ReserveRequest> = {},
  ): Promise<ReadyRecord> {
    const { sandboxId, revision } = await this.creating(actor, thread, more);
    const ref = `ref-of-${sandboxId}` as EngineRef;
    const place = thread === null ? (`slot:${sandboxId}` as const) : "home";
    const arrival = thread === null ? null : "empty";
    return this.some(await this.store.publish({ sandboxId, revision, actor, ref, place, arrival, hold }));
  }

  async stopping(actor: InstanceId, thread: string | null): Promise<StoppingRecord> {
    return this.stop(await this.ready(actor, thread), actor, { mode: { kind: "force" } });
  }

  async stop(record: SandboxRecord, actor: InstanceId, more: Partial<StopRequest> = {}): Promise<StoppingRecord> {
    const answer = await this.store.stop(stopOf(record, actor, more));
    this.expect(answer.kind).toBe("stopping");
    if (answer.kind !== "stopping") throw new Error(`stop answered ${answer.kind}`);
    return answer.record;
  }

  async hold(record: SandboxRecord, instance: InstanceId, seq: number): Promise<ReadyRecord> {
    const answer = await this.store.hold(holdOf(record, instance, seq));
    this.expect(answer.kind).toBe("held");
    if (answer.kind !== "held") throw new Error(`hold answered ${answer.kind}`);
    return answer.record;
  }

  async take(thread: string, instance: InstanceId, seq: number, store = this.store): Promise<ReadyRecord> {
    const answer = await store.take(takeOf(thread, instance, seq));
    this.expect(answer.kind).toBe("held");
    if (answer.kind !== "held") throw new Error(`take answered ${answer.kind}`);
    return answer.record;
  }

  async lease(record: SandboxRecord, leaseId: string, ttlMs = 60_000): Promise<LeaseId> {
    const { sandboxId, generation } = record;
    const id = leaseId as LeaseId;
    const granted = await this.store.grantLease({
      leaseId: id,
      sandboxId,
      generation,
      purpose: "test",
      holder: "a caller",
      ttlMs,
    });
    this.expect(granted).toBe(true);
    return id;
  }

  async now(sandboxId: SandboxId): Promise<SandboxRecord> {
    return this.some(await this.store.get(sandboxId));
  }

  async readyNow(sandboxId: SandboxId): Promise<ReadyRecord> {
    const record = await this.now(sandboxId);
    this.expect(record.state).toBe("ready");
    if (record.state !== "ready") throw new Error(`${sandboxId} is ${record.state}`);
    return record;
  }

  some<T>(value: T | null): T {
    this.expect(value === null, "expected something, got null").toBe(false);
    if (value === null) throw new Error("expected something, got null");
    return value;
  }
}

export function holdOf(record: SandboxRecord, instance: InstanceId, seq: number): HoldRequest {
  const { sandboxId, generation } = record;
  return { sandboxId, generation, instance, seq };
}

export function unholdOf(record: SandboxRecord, instance: InstanceId, seq: number, used = true): UnholdRequest {
  return { ...holdOf(record, instance, seq), used };
}

/** A request for the thread of `USER` with this name. */
export function takeOf(
  thread: string,
  instance: InstanceId,
  seq: number,
  more: Partial<Pick<TakeRequest, "blank" | "orReserve">> = {},
): TakeRequest {
  return { user: USER, thread: thread as ThreadId, instance, seq, blank: null, orReserve: null, ...more };
}

export function stopOf(record: SandboxRecord, actor: InstanceId, more: Partial<StopRequest> = {}): StopRequest {
  const { sandboxId, generation, revision, createdAt } = record;
  return {
    sandboxId,
    generation,
    actor,
    reason: "destroyed",
    purge: false,
    mode: { kind: "unheld", revision, createdAt },
    ...more,
  };
}

export function later(generation: Generation, by = 1): Generation {
  return (generation + by) as Generation;
}

export function identityOf(instance: string): ProcessIdentity {
  return { bootId: "boot", pidNamespace: "pid:[1]", pid: 1000 + instance.length, startTime: instance };
}

export function ids(records: readonly SandboxRecord[]): SandboxId[] {
  return records.map(({ sandboxId }) => sandboxId).sort();
}

let counters = 0;

/** Takes the store's next generation. The store gives one only with a record, so a record is made and removed. */
export async function nextGeneration(store: Store): Promise<Generation> {
  counters += 1;
  const actor = `counter-${counters}` as InstanceId;
  const session = {
    engines: [ENGINE],
    address: null,
    beat: 1,
    epoch: null,
    register: true,
    held: [],
    asOf: 0,
    generationFloor: 0,
  };
  await store.beat({ instance: actor, identity: identityOf(actor), ...session });
  const record = await store.claimForRemoval({
    ...{ sandboxId: actor as string as SandboxId, token: "token" as Token, backend: "memory", engine: ENGINE },
    blueprint: "default",
    ...{ blueprintHash: HASH, generation: null, ref: null, place: "home", key: null, actor },
  });
  if (record === null) throw new Error("the store gave no generation");
  await store.remove({ sandboxId: record.sandboxId, revision: record.revision, actor });
  await store.leave(actor);
  return record.generation;
}
