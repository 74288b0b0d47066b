/** The row store and a server that disturbs it: conflicts, lost answers, lost writes, damaged rows. */

import type { EngineRef, Generation, InstanceId, SandboxId, ThreadId, Token } from "@sandlot/contract";
import { describe, expect, it } from "vitest";
import type { ReadyRecord } from "../../src/store/record.ts";
import { epochAfter } from "../../src/store/rows/epoch-order.ts";
import { KEPT_TABLES } from "../../src/store/rows/row-server.ts";
import type { RowStore } from "../../src/store/rows/row-store.ts";
import { ENGINE, holdOf, identityOf, stopOf, takeOf, USER, unholdOf } from "../../src/testing/store-suite/stage.ts";
import { lostAnswer, newRows, writeRaw } from "./row-fixture.ts";

const A = "a" as InstanceId;
const B = "b" as InstanceId;
const LIMITS = { max: null, maxPerUser: null, maxPerEngine: null };

function beatOf(instance: string, beat: number, more: object = {}) {
  return {
    ...{ instance: instance as InstanceId, identity: identityOf(instance), engines: [ENGINE], address: null, beat },
    ...{ epoch: null, register: beat === 1, held: [], asOf: 0, generationFloor: 0, ...more },
  };
}

async function join(store: RowStore, instance = "a"): Promise<void> {
  expect((await store.beat(beatOf(instance, 1))).kind).toBe("ok");
  await store.endRecovery((await store.meta(ENGINE)).epoch, ENGINE);
}

function newRecord(name: string) {
  const ids = { sandboxId: `sandbox-${name}` as SandboxId, token: `token-${name}` as Token };
  return { ...ids, backend: "memory", engine: ENGINE, blueprint: "default", blueprintHash: "hash" as never };
}

/** A sandbox for a thread, held by its maker. */
async function make(store: RowStore, thread: string, instance = A, hold: number | null = 1): Promise<ReadyRecord> {
  const request = takeOf(thread, instance, 1, { orReserve: { ...newRecord(thread), limits: LIMITS } });
  const taken = await store.take(request);
  if (taken.kind !== "reserved") throw new Error(`take answered ${taken.kind}`);
  const { sandboxId, revision } = taken.record;
  const made = { ref: `ref-${thread}` as EngineRef, place: "home", arrival: "empty" } as const;
  const ready = await store.publish({ sandboxId, revision, actor: instance, ...made, hold });
  if (ready === null) throw new Error("publish lost");
  return ready;
}

/** The whole life of a sandbox; every answer is checked. */
async function live(store: RowStore, thread = "t"): Promise<void> {
  await join(store);
  const held = await make(store, thread);
  expect((await store.unhold(unholdOf(held, A, 1)))?.holders).toEqual({});
  const again = await store.take(takeOf(thread, A, 2));
  expect(again).toMatchObject({ kind: "held", record: { revision: held.revision + 2 } });
  await store.unhold(unholdOf(held, A, 2));
  const parked = await store.find(USER, thread as ThreadId);
  if (parked === null) throw new Error("no record");
  const stopped = await store.stop(stopOf(parked, A));
  if (stopped.kind !== "stopping") throw new Error(`stop answered ${stopped.kind}`);
  const { sandboxId, revision } = stopped.record;
  expect(await store.remove({ sandboxId, revision, actor: A })).toBe(true);
  expect(await store.list()).toEqual([]);
  expect(await store.tombstone(sandboxId)).toMatchObject({ reason: "destroyed" });
}

describe("a step that others overtake", () => {
  it("runs again over the present rows, at every commit of a sandbox's life", async () => {
    const { rows, open } = newRows();
    const { server, store } = open();
    let overtaken = 0;
    let commits = 0;
    server.onCommit = async (commit, proceed) => {
      commits += 1;
      // The same rows get new numbers before two of three commits.
      const present = [...commit.reads.keys()].filter((key) => rows.read([key]).rows[0]?.body !== null);
      if (commits % 3 !== 0 && present.length > 0) {
        for (const key of present) writeRaw(rows, key, (body) => body);
        overtaken += 1;
      }
      return proceed(commit);
    };
    await live(store);
    expect(overtaken).toBeGreaterThan(8);
    expect(store.counts.conflicts).toBe(overtaken);
  });

  it("gives up at its deadline when it is overtaken for ever", async () => {
    const { rows, open } = newRows();
    const { server, store } = open(300);
    await join(store);
    const held = await make(store, "t");
    server.onCommit = async (commit, proceed) => {
      for (const key of commit.reads.keys()) writeRaw(rows, key, (body) => body);
      return proceed(commit);
    };
    const begunAt = performance.now();
    await expect(store.hold(holdOf(held, A, 2))).rejects.toMatchObject({ code: "store_unavailable" });
    expect(performance.now() - begunAt).toBeLessThan(8_000);
    // Overtaken steps pause, so that they do not burden the server.
    expect(store.counts.conflicts).toBeLessThan(60);
  });
});

describe("a lost answer", () => {
  it("is asked for again under the same id, and nothing happens twice", async () => {
    const { open } = newRows();
    const { server, store } = open();
    const answered = new Set<string>();
    server.onCommit = async (commit, proceed) => {
      const answer = await proceed(commit);
      if (answered.has(commit.id)) return answer;
      answered.add(commit.id);
      throw lostAnswer();
    };
    await live(store);
    expect(store.counts.retries).toBe(answered.size);
  });

  it("to a commit that never arrived is asked for again, too", async () => {
    const { open } = newRows();
    const { server, store } = open();
    const tried = new Set<string>();
    server.onCommit = async (commit, proceed) => {
      if (tried.has(commit.id)) return proceed(commit);
      tried.add(commit.id);
      throw lostAnswer();
    };
    await live(store);
  });

  it("that never comes is store_unavailable at the deadline, and the commit has no effect later", async () => {
    const { rows, open } = newRows();
    const { server, store } = open(200);
    await join(store);
    const held = await make(store, "t");
    let late: (() => Promise<unknown>) | null = null;
    server.onCommit = async (commit, proceed, signal) => {
      late ??= () => proceed(commit);
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    };
    const begunAt = performance.now();
    await expect(store.unhold(unholdOf(held, A, 1))).rejects.toMatchObject({ code: "store_unavailable" });
    expect(performance.now() - begunAt).toBeLessThan(8_000);
    const before = rows.read([`record/${held.sandboxId}`]).rows[0];
    await new Promise((resolve) => setTimeout(resolve, 50));
    await expect((late as unknown as () => Promise<unknown>)()).rejects.toBeDefined();
    server.onCommit = null;
    const commit = server.commits.at(-1);
    if (commit === undefined) throw new Error("no commit");
    expect(rows.commit(commit).kind).toBe("late");
    expect(rows.read([`record/${held.sandboxId}`]).rows[0]).toEqual(before);
  });

  it("ends with the store", async () => {
    const { open } = newRows();
    const { server, store } = open(60_000);
    await join(store);
    server.onCommit = () => new Promise(() => undefined);
    const pending = store.get("sandbox" as SandboxId);
    await new Promise((resolve) => setTimeout(resolve, 5));
    await store.close();
    await expect(pending).rejects.toMatchObject({ code: "store_unavailable" });
  });
});

describe("what a store remembers", () => {
  it("never answers for what others have changed", async () => {
    const { open } = newRows();
    const [one, two] = [open().store, open().store];
    await join(one);
    await join(two, "b");
    const held = await make(one, "t");
    await two.hold(holdOf(held, B, 1));
    expect(await one.get(held.sandboxId)).toEqual(await two.find(USER, "t" as ThreadId));
    await two.unhold(unholdOf(held, B, 1));
    await one.unhold(unholdOf(held, A, 1));
    const parked = await two.get(held.sandboxId);
    if (parked === null) throw new Error("no record");
    const stopped = await two.stop(stopOf(parked, B));
    if (stopped.kind !== "stopping") throw new Error(stopped.kind);
    expect((await one.take(takeOf("t", A, 2))).kind).toBe("other");
    await two.remove({ sandboxId: held.sandboxId, revision: stopped.record.revision, actor: B });
    expect(await one.find(USER, "t" as ThreadId)).toBeNull();
    expect((await one.take(takeOf("t", A, 3))).kind).toBe("other");
    expect(await one.list()).toEqual([]);
    await two.leave(B);
    expect((await one.sessions()).map(({ instance }) => instance)).toEqual(["a"]);
  });

  it("keeps fields that it does not know", async () => {
    const { rows, open } = newRows();
    const { store } = open();
    await join(store);
    const held = await make(store, "t");
    const key = `record/${held.sandboxId}`;
    writeRaw(rows, key, (body) => JSON.stringify({ ...JSON.parse(body ?? ""), ofANewerVersion: { deep: [1] } }));
    await store.unhold(unholdOf(held, A, 1));
    expect(JSON.parse(rows.read([key]).rows[0]?.body ?? "")).toMatchObject({ ofANewerVersion: { deep: [1] } });
  });
});

describe("a damaged row", () => {
  it.each([
    ["that is not JSON", "{"],
    ["of another shape", '{"sandboxId":"sandbox-t","state":"ready"}'],
    ["of another sandbox", null],
  ])("%s is store_corrupt by name, and the rest goes on", async (_, body) => {
    const { rows, open } = newRows();
    const { store } = open();
    await join(store);
    const held = await make(store, "t");
    const other = await make(store, "u");
    const key = `record/${held.sandboxId}`;
    const copy = rows.read([`record/${other.sandboxId}`]).rows[0]?.body ?? null;
    writeRaw(rows, key, () => body ?? copy);
    const corrupt = { code: "store_corrupt", details: { path: `row ${key}` } };
    await expect(store.get(held.sandboxId)).rejects.toMatchObject(corrupt);
    await expect(store.find(USER, "t" as ThreadId)).rejects.toMatchObject(corrupt);
    await expect(store.list()).rejects.toMatchObject(corrupt);
    expect((await store.take(takeOf("u", A, 2))).kind).toBe("held");
    expect((await store.beat(beatOf("a", 2, { held: [holdOf(other, A, 2)], asOf: 2 }))).kind).toBe("ok");
  });
});

describe("a server that has lost its last writes", () => {
  it("is noticed by the instance that made them: a new epoch begins, and holders put theirs back", async () => {
    const { rows, clock, open } = newRows();
    const { store } = open();
    await join(store);
    const { epoch } = await store.meta(ENGINE);
    clock.offsetMs += 3_000;
    const held = await make(store, "t");
    expect(rows.rewind(2_500).length).toBeGreaterThan(0);
    const answer = await store.beat(beatOf("a", 2, { epoch, held: [holdOf(held, A, 1)], asOf: 1 }));
    expect(answer).toMatchObject({ kind: "new-epoch" });
    const renewed = (await store.meta(ENGINE)).epoch;
    expect(renewed).not.toBe(epoch);
    expect(await store.meta(ENGINE)).toEqual({ epoch: renewed, recovering: true });
    await store.beat(beatOf("a", 3, { epoch: renewed, register: true }));
    const [back] = await store.rejoin({
      instance: A,
      epoch: renewed,
      holds: [{ kind: "restore", record: held, seq: 2 }],
    });
    expect(back).toMatchObject({ kind: "held", record: { sandboxId: held.sandboxId, generation: held.generation } });
    await store.endRecovery(renewed, ENGINE);
    expect((await make(store, "u")).generation).toBeGreaterThan(held.generation);
  });

  it("is noticed in every step, not only in a beat", async () => {
    const { rows, clock, open } = newRows();
    const { store } = open();
    await join(store);
    const held = await make(store, "t");
    clock.offsetMs += 3_000;
    await store.unhold(unholdOf(held, A, 1));
    rows.rewind(2_500);
    expect((await store.take(takeOf("t", A, 2))).kind).toBe("unknown-session");
    expect(await store.list()).toEqual([]);
  });

  it("is noticed by an instance that has only read what was lost", async () => {
    const { rows, clock, open } = newRows();
    const [one, two] = [open().store, open().store];
    await join(one);
    const { epoch } = await two.meta(ENGINE);
    clock.offsetMs += 3_000;
    const held = await make(one, "t");
    expect((await two.list()).length).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 5));
    rows.rewind(2_500);
    expect(await two.get(held.sandboxId)).toBeNull();
    expect((await two.meta(ENGINE)).epoch).not.toBe(epoch);
  });

  it("is noticed when an epoch that was over comes back", async () => {
    const { rows, clock, open } = newRows();
    const { store } = open();
    await join(store);
    const first = (await store.meta(ENGINE)).epoch;
    clock.offsetMs += 3_000;
    rows.beginEpoch(first, "second" as typeof first);
    expect((await store.meta(ENGINE)).epoch).toBe("second");
    rows.rewind(2_500);
    expect(rows.epoch).toBe(first);
    const third = (await store.meta(ENGINE)).epoch;
    expect([first, "second"]).not.toContain(third);
  });

  it("is noticed by a process that joined after the epoch that comes back", async () => {
    const { rows, clock, open } = newRows();
    const first = (await open().store.meta(ENGINE)).epoch;
    clock.offsetMs += 3_000;
    const second = rows.beginEpoch(first, epochAfter(first, rows.now(), "a0"));
    const { store } = open();
    await join(store);
    rows.rewind(2_500);
    expect(rows.epoch).toBe(first);
    const third = (await store.meta(ENGINE)).epoch;
    expect([first, second]).not.toContain(third);
    expect(rows.epoch).toBe(third);
  });

  it("keeps the homes of threads over the new epoch", async () => {
    expect(KEPT_TABLES).toEqual(["home", "entry", "transfer"]);
    const { rows, open } = newRows();
    const { store } = open();
    await join(store);
    await make(store, "t");
    const { epoch } = await store.meta(ENGINE);
    rows.beginEpoch(epoch, "next" as typeof epoch);
    const place = await store.locate({ user: USER, thread: "t" as ThreadId, engines: ["another"] });
    expect(place).toMatchObject({ epoch: "next", elsewhere: { engine: ENGINE } });
  });

  it("gives later generations, also when its clock was set back", async () => {
    const { clock, rows, open } = newRows();
    const { store } = open();
    await join(store);
    const { generation } = await make(store, "t");
    clock.offsetMs = -3_600_000;
    expect((await make(store, "u")).generation).toBeGreaterThan(generation);
    // With the lost row only the holder's floor is left.
    const { epoch } = await store.meta(ENGINE);
    rows.beginEpoch(epoch, "next" as typeof epoch);
    await store.beat(beatOf("a", 9, { epoch: "next", register: true, generationFloor: generation + 5 }));
    await store.endRecovery("next" as typeof epoch, ENGINE);
    expect((await make(store, "v")).generation).toBeGreaterThan(generation + 5);
  });
});

describe("a session that ends", () => {
  it("has no rights after the first commit, and any instance makes the second", async () => {
    const { open } = newRows();
    const [one, two, three] = [open(), open(), open()];
    await join(one.store);
    await join(two.store, "b");
    const held = await make(one.store, "t");
    // The instance that ends it dies between its two commits.
    let commits = 0;
    two.server.onCommit = (commit, proceed) => {
      commits += 1;
      return commits === 1 ? proceed(commit) : new Promise(() => undefined);
    };
    void two.store.endDeadSession(A, 1).catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(commits).toBe(2);
    expect(await one.store.hold(holdOf(held, A, 2))).toEqual({ kind: "unknown-session" });
    expect(await one.store.take(takeOf("t", A, 2))).toEqual({ kind: "unknown-session" });
    expect((await one.store.beat(beatOf("a", 2))).kind).toBe("unknown-session");
    expect((await three.store.get(held.sandboxId))?.holders).toHaveProperty("a");
    expect((await three.store.sessions()).map(({ instance }) => instance).sort()).toEqual(["a", "b"]);
    expect(await three.store.endDeadSession(A, 1)).toBe(true);
    expect((await three.store.get(held.sandboxId))?.holders).toEqual({});
    expect((await three.store.sessions()).map(({ instance }) => instance)).toEqual(["b"]);
    await two.store.close();
  });

  it("goes on when its instance registers again before the second commit", async () => {
    const { open } = newRows();
    const [one, two] = [open(), open()];
    await join(one.store);
    await join(two.store, "b");
    const held = await make(one.store, "t");
    let registered: Promise<unknown> | null = null;
    let commits = 0;
    two.server.onCommit = async (commit, proceed) => {
      commits += 1;
      if (commits === 2) {
        registered = one.store.beat(beatOf("a", 2, { register: true, held: [holdOf(held, A, 1)], asOf: 1 }));
        expect(await registered).toMatchObject({ kind: "ok", lost: [] });
      }
      return proceed(commit);
    };
    expect(await two.store.endDeadSession(A, 1)).toBe(false);
    expect(registered).not.toBeNull();
    expect((await one.store.get(held.sandboxId))?.holders).toHaveProperty("a");
  });

  it("is not ended by a judgement of an older beat", async () => {
    const { open } = newRows();
    const { store } = open();
    await join(store);
    await store.beat(beatOf("a", 2));
    expect(await store.endDeadSession(A, 1)).toBe(false);
  });

  it("loses a hold that was taken between the commits' scan and the end, by a conflict", async () => {
    const { open } = newRows();
    const [one, two] = [open(), open()];
    await join(one.store);
    await join(two.store, "b");
    const parked = await make(one.store, "t", A, null);
    const taking: Promise<unknown>[] = [];
    const held = one.server.commits.length;
    two.server.onCommit = async (commit, proceed) => {
      taking.push(one.store.hold(holdOf(parked, A, 5)));
      return proceed(commit);
    };
    await two.store.endDeadSession(A, 1);
    await Promise.all(taking);
    expect(one.server.commits.length).toBeGreaterThan(held);
    expect((await two.store.get(parked.sandboxId))?.holders).toEqual({});
  });
});

describe("an instance with 300 holds", () => {
  async function crowd() {
    const { rows, open } = newRows();
    const { server, store } = open(5_000);
    await join(store);
    const held: ReadyRecord[] = [];
    for (let n = 0; n < 300; n += 1) held.push(await make(store, `t${n}`));
    return { rows, server, store, held };
  }

  it("beats with one scan and one commit that reads few rows", async () => {
    const { server, store, held } = await crowd();
    server.calls.length = 0;
    const answer = await store.beat(beatOf("a", 2, { held: held.map((one) => holdOf(one, A, 1)), asOf: 1 }));
    expect(answer).toMatchObject({ kind: "ok", lost: [] });
    expect(server.calls).toEqual(["scan", "commit"]);
    expect(server.commits.at(-1)?.reads.size).toBeLessThan(8);
  });

  it("rejoins in one commit, and hears of each hold by itself", async () => {
    const { rows, server, store, held } = await crowd();
    const { epoch } = await store.meta(ENGINE);
    rows.beginEpoch(epoch, "next" as typeof epoch);
    const next = { instance: A, epoch: "next" as typeof epoch };
    await store.beat(beatOf("a", 2, { epoch: "next", register: true }));
    server.calls.length = 0;
    const holds = held.map((record) => ({ kind: "restore", record, seq: 2 }) as const);
    const answers = await store.rejoin({ ...next, holds });
    expect(server.calls).toEqual(["commit"]);
    expect(answers.map(({ kind }) => kind)).toEqual(held.map(() => "held"));
    const [first, ...others] = held;
    if (first === undefined) throw new Error("no hold");
    const gone = { ...first, generation: (first.generation + 1) as Generation };
    const mixed = await store.rejoin({
      ...next,
      holds: [
        { kind: "restore", record: gone, seq: 3 },
        ...others.map((record) => ({ kind: "hold", ...holdOf(record, A, 3) }) as const),
      ],
    });
    expect(mixed.map(({ kind }) => kind)).toEqual(["gone", ...others.map(() => "held")]);
  });
});
