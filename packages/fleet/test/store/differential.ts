/**
 * The memory store beside another store: any sequence of steps gives the same results and leaves the same rows. The
 * transactions are shared, so this finds rows that are stored, indexed, cached or read differently.
 */

import type { LeaseId, SandboxId } from "@sandlot/contract";
import fc from "fast-check";
import { expect } from "vitest";
import type { SandboxRecord } from "../../src/store/record.ts";
import type { Store } from "../../src/store/store.ts";
import type { StoreHarness } from "../../src/testing/store-suite.ts";
import { systemWorld } from "../../src/world/system-world.ts";
import type { World } from "../../src/world/world.ts";
import { openMemory } from "./stores.ts";

const RUNS = 150;
const STEPS_MAX = 50;
const ENGINE = "engine-here";

/** One step, by small numbers. The present records give them meaning, so that most steps hit something. */
const stepArbitrary = fc.record({
  operation: fc.nat(20),
  /** The connection to the other store, of two: each must see the other's writes. */
  connection: fc.nat(1),
  /** The connection that checks everything afterwards. */
  look: fc.nat(1),
  /** The record's index; one past the end means an unknown one. */
  record: fc.nat(4),
  instance: fc.constantFrom("a", "b", "c"),
  thread: fc.constantFrom(null, "t1", "t2", "t3"),
  /** Mostly right, sometimes a neighbour. */
  off: fc.constantFrom(0, 0, 0, 0, -1, 1),
  seq: fc.nat(6),
  limit: fc.constantFrom(null, null, 0, 1, 2, 3, 4),
  flag: fc.boolean(),
  mode: fc.constantFrom("unheld", "dead", "force", "abandon", "cancel"),
  passMs: fc.constantFrom(0, 1, 1_000),
});
type Step = typeof stepArbitrary extends fc.Arbitrary<infer T> ? T : never;

/** Runs `runs` sequences of steps on the memory store and on another, and fails at the first difference. */
export async function expectSameAnswers(open: (world: World) => Promise<StoreHarness>, runs = RUNS): Promise<void> {
  const sequences = fc.array(stepArbitrary, { minLength: 10, maxLength: STEPS_MAX, size: "max" });
  await fc.assert(
    fc.asyncProperty(sequences, (steps) => runBoth(steps, open)),
    { numRuns: runs },
  );
}

async function runBoth(steps: readonly Step[], open: (world: World) => Promise<StoreHarness>): Promise<void> {
  let passedMs = 0;
  const world = { ...systemWorld(), wallMs: () => 1_800_000_000_000 + passedMs, monotonicMs: () => passedMs };
  const tested = await open(world);
  const harnesses: StoreHarness[] = [await openMemory(world, tested.store.isShared), tested];
  const [memory, other] = harnesses.map(({ store }) => store) as [Store, Store];
  try {
    const connections = [other, await tested.second()] as const;
    for (const name of ["a", "b", "c"]) await both(memory, other, (store) => beat(store, name, 1, true, []));
    await both(memory, other, async (store) => store.endRecovery((await store.meta(ENGINE)).epoch, ENGINE));
    for (const [n, step] of steps.entries()) {
      passedMs += step.passMs;
      const records = [...(await memory.list())].sort((x, y) => (x.sandboxId < y.sandboxId ? -1 : 1));
      const sessions = await memory.sessions();
      const beats = new Map(sessions.map(({ instance, beat }) => [instance as string, beat]));
      await both(memory, connections[step.connection] as Store, (store) => perform(store, step, n, records, beats));
      await both(memory, connections[step.look] as Store, present);
    }
    for (const connection of connections) await both(memory, connection, present);
    await both(memory, other, past);
  } finally {
    await Promise.all(harnesses.map((harness) => harness.dispose()));
  }
}

/**
 * Epochs are random, so their owners are compared. The counts of a refusal are a hint in a shared store: it does not
 * ask for every record only to refuse.
 */
async function both(memory: Store, other: Store, step: (store: Store) => Promise<unknown>): Promise<void> {
  const plain = async (store: Store) => {
    const { epoch } = await store.meta(ENGINE);
    const answer = (await step(store)) as { readonly kind?: unknown } | null | undefined;
    const compared = answer?.kind === "full" ? { ...answer, counts: null } : (answer ?? null);
    return JSON.parse(JSON.stringify(compared).replaceAll(epoch, "EPOCH"));
  };
  expect(await plain(other)).toEqual(await plain(memory));
}

async function present(store: Store): Promise<unknown> {
  const byId = (records: readonly SandboxRecord[]) => [...records].sort((x, y) => (x.sandboxId < y.sandboxId ? -1 : 1));
  const all = byId(await store.list());
  return {
    sessions: [...(await store.sessions())].sort((x, y) => (x.instance < y.instance ? -1 : 1)),
    meta: await store.meta(ENGINE),
    all,
    parked: byId(await store.list({ parked: true })),
    acting: byId(await store.list({ acting: true })),
    blank: byId(await store.list({ blankOf: "hash" })),
    leases: await Promise.all(all.map(({ sandboxId }) => store.findLease(leaseOf(sandboxId)))),
    threads: await Promise.all(["t1", "t2", "t3"].map((thread) => store.find("u" as never, thread as never))),
  };
}

async function past(store: Store): Promise<unknown> {
  return Promise.all(Array.from({ length: STEPS_MAX }, (_, n) => store.tombstone(`s${n}` as SandboxId)));
}

function leaseOf(sandboxId: SandboxId): LeaseId {
  return `lease-of-${sandboxId}` as LeaseId;
}

function beat(
  store: Store,
  instance: string,
  count: number,
  register: boolean,
  held: readonly SandboxRecord[],
  asOf = 0,
): Promise<unknown> {
  const identity = { bootId: "b", pidNamespace: "p", pid: 1, startTime: instance };
  const about = { engines: [ENGINE], address: `http://${instance}` };
  const request = { instance, identity, ...about, beat: count, epoch: null, register, asOf, generationFloor: 0 };
  return store.beat({
    ...request,
    held: held.map(({ sandboxId, generation }) => ({ sandboxId, generation })),
  } as never);
}

function perform(
  store: Store,
  step: Step,
  n: number,
  records: readonly SandboxRecord[],
  beats: ReadonlyMap<string, number>,
): Promise<unknown> {
  const { instance, seq, flag, off, limit } = step;
  const actor = instance;
  const known = records[step.record % (records.length + 1)];
  const target =
    known ?? ({ sandboxId: "unknown", generation: 1, revision: 1, token: "x", actor } as unknown as SandboxRecord);
  const { sandboxId, thread } = target;
  // Sometimes a lease that another sandbox may have.
  const leaseId = leaseOf(off === 1 ? (records[0]?.sandboxId ?? sandboxId) : sandboxId);
  const generation = target.generation + off;
  const revision = target.revision + off;
  const fresh = {
    sandboxId: `s${n}`,
    token: `k${n}`,
    backend: "memory",
    engine: ENGINE,
    blueprint: "default",
    blueprintHash: flag ? "hash" : "other",
  };
  const key = step.thread === null ? null : { user: "u", thread: step.thread };
  const limits = { max: limit === null ? null : limit + 2, maxPerUser: limit, maxPerEngine: null };
  const place = "home";
  const steps: readonly (() => Promise<unknown>)[] = [
    () => store.reserve({ ...fresh, key, actor, limits } as never),
    () => store.reserve({ ...fresh, key, actor, limits: { max: null, maxPerUser: null, maxPerEngine: null } } as never),
    () =>
      store.publish({
        sandboxId,
        revision,
        actor: target.actor ?? actor,
        ref: "r",
        place,
        arrival: flag ? "empty" : "restored",
        hold: flag ? seq : null,
      } as never),
    () =>
      store.publish({
        sandboxId,
        revision,
        actor: target.actor ?? actor,
        ref: "r",
        place,
        arrival: null,
        hold: null,
      } as never),
    () => store.hold({ sandboxId, generation, instance, seq } as never),
    () => store.unhold({ sandboxId, generation, instance, seq, used: flag } as never),
    async () => {
      // A shared store picks among the blanks of its last look.
      await store.list();
      const blank = flag ? { blueprintHash: "hash", except: n % 2 === 0 ? [sandboxId] : [] } : null;
      const reserve = {
        sandboxId: `n${n}`,
        token: `t${n}`,
        backend: "memory",
        engine: ENGINE,
        blueprint: "d",
        blueprintHash: "hash",
      };
      const orReserve =
        seq % 2 === 0 ? { ...reserve, limits: { max: 6, maxPerUser: limit, maxPerEngine: null } } : null;
      return store.take({ user: "u", thread: step.thread ?? thread ?? "t1", instance, seq, blank, orReserve } as never);
    },
    () =>
      store.bind({
        sandboxId,
        revision,
        user: "u",
        thread: step.thread ?? "t1",
        generation: generation + 1_000 + n,
        token: `b${n}`,
        instance,
        seq,
        maxPerUser: limit,
      } as never),
    () => store.confirmBound(sandboxId, generation as never, flag ? "restored" : "empty"),
    () =>
      store.stop({
        sandboxId,
        generation,
        actor,
        reason: "idle",
        purge: flag,
        mode: { kind: step.mode, revision, createdAt: target.createdAt },
      } as never),
    () => store.takeOver({ sandboxId, revision, actor } as never),
    () => store.remove({ sandboxId, revision, actor: target.actor ?? actor } as never),
    () => store.grantLease({ leaseId, sandboxId, generation, purpose: "p", holder: "h", ttlMs: 9 } as never),
    () => store.renewLease(leaseId),
    () => (flag ? store.releaseLease(leaseId) : store.expireLease(leaseId, { generation, beat: seq } as never)),
    () =>
      store.restore({
        record: { ...target, ...(known === undefined ? { ...fresh, ...restorable(key) } : {}) },
        instance,
        seq,
      } as never),
    async () =>
      store.adopt({
        ...fresh,
        epoch: off === -1 ? "another" : (await store.meta(ENGINE)).epoch,
        ...(flag ? { sandboxId } : {}),
        ...(key ?? { user: "u", thread: thread ?? "t1" }),
        generation,
        ref: "r",
        place,
        limits,
      } as never),
    () =>
      store.claimForRemoval({
        ...fresh,
        ...(flag ? { sandboxId } : {}),
        key,
        generation,
        ref: null,
        place,
        actor,
      } as never),
    async () => {
      const epoch = off === -1 ? "another" : (await store.meta(ENGINE)).epoch;
      return store.claimForRemoval({ ...fresh, key, generation, ref: null, place, actor, purge: flag, epoch } as never);
    },
    () => beat(store, instance, (beats.get(instance) ?? 0) + 1 + off, true, flag ? records.slice(0, 2) : [], seq),
    () =>
      flag ? store.endDeadSession(instance as never, (beats.get(instance) ?? 1) + off) : store.leave(instance as never),
  ];
  return (steps[step.operation] as () => Promise<unknown>)();
}

/** The rest of a record that an instance might remember. */
function restorable(key: { user: string; thread: string } | null): object {
  const empty = { holders: {}, leases: {}, arrival: null, boundFrom: null, parkedAt: null, reason: null, ref: "r" };
  return {
    ...empty,
    ...(key ?? { user: "u", thread: "t3" }),
    state: "ready",
    place: "home",
    createdAt: 1,
    purge: false,
    revision: 3,
    generation: 7,
  };
}
