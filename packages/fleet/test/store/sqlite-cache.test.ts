/**
 * A connection's cache is never older than the file: it always shows another connection's or process's commit, and
 * never shows a rolled-back change.
 */

import { DatabaseSync } from "node:sqlite";
import type { EngineRef, InstanceId, SandboxId, ThreadId } from "@sandlot/contract";
import fc from "fast-check";
import { afterEach, describe, expect, it } from "vitest";
import type { ReadyRecord, SandboxRecord } from "../../src/store/record.ts";
import { Connection } from "../../src/store/sqlite/connection.ts";
import { identify } from "../../src/store/sqlite/file.ts";
import type { Tables } from "../../src/store/tables.ts";
import { TransactionalStore } from "../../src/store/transactional-store.ts";
import { startChild } from "./children.ts";
import { beat, here, open, openWithRecord, reserve, THREAD, USER, useTemporaryHome } from "./sqlite-fixture.ts";

useTemporaryHome();

const A = "a" as InstanceId;
let connections: Connection[] = [];
afterEach(() => {
  for (const connection of connections) connection.close();
  connections = [];
});

function connect(db = new DatabaseSync(here.path, { timeout: 1_000 })): Connection {
  const file = identify(here.path);
  if (file === null) throw new Error("no file");
  const connection = new Connection({ db, path: here.path, file, epoch: "e" as never, now: () => 1 });
  connections.push(connection);
  return connection;
}

async function someRecord(): Promise<SandboxRecord> {
  const { store } = await openWithRecord();
  const record = await store.find(USER, THREAD);
  await store.close();
  if (record === null) throw new Error("no record");
  return record;
}

/** Everything that the cache returns, and its subject. */
function everything(tables: Tables) {
  return {
    meta: tables.meta(),
    generation: tables.generation(),
    sessions: ["a", "b"].map((instance) => tables.hasSession(instance as InstanceId)),
    byId: ["s0", "s1", "s2"].map((id) => tables.record(id as SandboxId)),
    byThread: ["t0", "t1", "t2"].map((thread) => tables.recordOf(USER, thread as ThreadId)),
    all: [...tables.records()].sort((x, y) => (x.sandboxId < y.sandboxId ? -1 : 1)),
    count: tables.countAll(),
  };
}

const identity = { bootId: "b", pidNamespace: "p", pid: 1, startTime: "s" };

function change(tables: Tables, kind: number, which: number, n: number, base: ReadyRecord): void {
  const sandboxId = `s${which}` as SandboxId;
  const found = tables.record(sandboxId);
  const old = found?.state === "ready" ? found : null;
  const thread = `t${(which + n) % 3}` as ThreadId;
  if (kind === 0) {
    tables.putMeta({ ...tables.meta(), recovering: n % 2 === 0 });
    tables.putGeneration(n);
  }
  if (kind === 1)
    tables.putSession({
      ...{ instance: (which === 0 ? "a" : "b") as InstanceId, beat: n, lastBeatAt: n, identity },
      ...{ engines: [`engine-${n}`], address: n % 2 === 0 ? null : "http://here" },
    });
  if (kind === 2) tables.deleteSession((which === 0 ? "a" : "b") as InstanceId);
  if (kind === 3 && old !== null) tables.deleteRecord(sandboxId);
  // Only the holders change: the text of the rest is reused.
  if (kind === 4 && old !== null)
    tables.putRecord({ ...old, revision: n, holders: { [A]: { generation: old.generation, seq: n, since: n } } });
  if (kind === 5 && old !== null) tables.putRecord({ ...old, revision: n, holders: {}, parkedAt: n });
  if (kind === 6 && old !== null)
    tables.putRecord({ ...old, revision: n, token: `k${n}` as never, place: `slot:${n}` });
  if (kind >= 7) {
    const claimed = tables.recordOf(USER, thread);
    if (claimed === null || claimed.sandboxId === sandboxId)
      tables.putRecord({ ...base, sandboxId, thread: n % 5 === 0 ? null : thread, revision: n });
  }
}

const stepArbitrary = fc.record({
  connection: fc.nat(1),
  kind: fc.nat(8),
  which: fc.nat(2),
  /** `rollback` throws after the change, so that no trace may remain anywhere. */
  end: fc.constantFrom("commit", "commit", "commit", "rollback"),
  look: fc.constantFrom("read", "write", "none"),
});

describe("two connections in random order", () => {
  it("each find what a third that remembers nothing finds, also after rolling back", { timeout: 60_000 }, async () => {
    const base: ReadyRecord = {
      ...(await someRecord()),
      ...{ state: "ready", actor: null, ref: "ref" as EngineRef, holders: {}, leases: {}, purge: false, reason: null },
    };
    const both = [connect(), connect()];
    let n = 0;
    fc.assert(
      fc.property(fc.array(stepArbitrary, { minLength: 5, maxLength: 40, size: "max" }), (steps) => {
        for (const { connection, kind, which, end, look } of steps) {
          n += 1;
          const at = both[connection] as Connection;
          const run = () =>
            at.transact("write", (tables) => {
              change(tables, kind, which, n, base);
              if (end === "rollback") throw new Error("rolled back");
            });
          if (end === "rollback") expect(run).toThrow("rolled back");
          else run();
          if (look === "none") continue;
          const fresh = connect();
          const truth = fresh.transact("write", everything);
          fresh.close();
          for (const one of both) expect(one.transact(look, everything)).toEqual(truth);
        }
      }),
      { numRuns: 60 },
    );
  });
});

describe("a cached row", () => {
  it("is left behind by any commit of another connection, however it was made", async () => {
    const record = await someRecord();
    const one = connect();
    const find = () => one.transact("write", (tables) => tables.recordOf(USER, THREAD));
    const outside = new DatabaseSync(here.path, { timeout: 1_000 });
    expect(find()).toEqual(record);
    outside.exec(`UPDATE records SET body = json_set(body, '$.revision', 77)`);
    expect(find()?.revision).toBe(77);
    // Rows are renumbered, and the next update must still reach the right one.
    outside.exec("INSERT INTO records VALUES ('x', 'u', 'x', 'ready', 'h', '{}', 0)");
    outside.exec("DELETE FROM records WHERE sandbox_id <> 'x'; VACUUM");
    expect(find()).toBe(null);
    one.transact("write", (tables) => tables.putRecord(record));
    outside.exec("DELETE FROM records WHERE sandbox_id = 'x'; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
    one.transact("write", (tables) => tables.putRecord({ ...record, revision: 78 }));
    expect(outside.prepare("SELECT count(*) AS count FROM records").get()).toEqual({ count: 1 });
    expect(connect().transact("read", (tables) => tables.records())).toEqual([{ ...record, revision: 78 }]);
    outside.close();
  });

  it("survives its own commits and its own checkpoints, and nothing is read twice", async () => {
    const record = await someRecord();
    const db = new DatabaseSync(here.path, { timeout: 1_000 });
    const one = connect(db);
    one.transact("write", (tables) => tables.putRecord({ ...record, revision: 2 }));
    db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    const cached = one.transact("write", (tables) => tables.recordOf(USER, THREAD));
    one.transact("write", (tables) => tables.putGeneration(9));
    // The same object: it was not parsed again.
    expect(one.transact("read", (tables) => tables.record(record.sandboxId))).toBe(cached);
  });

  it("is not read from a transaction that could not be rolled back", async () => {
    const record = await someRecord();
    const db = new DatabaseSync(here.path, { timeout: 1_000 });
    const prepare = db.prepare.bind(db);
    let failures = 1;
    db.prepare = (sql) => {
      const statement = prepare(sql);
      if (sql !== "ROLLBACK") return statement;
      const run = statement.run.bind(statement);
      statement.run = () => {
        failures -= 1;
        if (failures >= 0) throw new Error("not now");
        return run();
      };
      return statement;
    };
    const one = connect(db);
    const fail = () =>
      one.transact("write", (tables) => {
        tables.putRecord({ ...record, revision: 99 });
        throw new Error("first");
      });
    expect(fail).toThrow("first");
    expect(db.isTransaction).toBe(true);
    expect(one.transact("read", (tables) => tables.record(record.sandboxId))).toEqual(record);
    expect(db.isTransaction).toBe(false);
  });

  it("is written with every field that changed, and with names that need escaping", async () => {
    const first = await someRecord();
    const hold = { generation: 1 as never, seq: 2, since: 3 };
    const lease = { generation: 1 as never, purpose: "p", holder: '"', acquiredAt: 1, ttlMs: 2, beat: 3 };
    const changed: { readonly [Field in keyof SandboxRecord]: SandboxRecord[Field] } = {
      ...{
        sandboxId: first.sandboxId,
        user: "u2" as never,
        thread: "t2" as never,
        revision: 9,
        generation: 8 as never,
      },
      ...{
        token: 'k"2' as never,
        state: "stopping",
        actor: A,
        backend: "b2",
        engine: "e2",
        ref: "r2" as never,
        blueprint: "d2",
      },
      ...{ blueprintHash: "h2" as never, place: "slot:2", arrival: "empty", purge: true, reason: "idle" },
      ...{ boundFrom: { generation: 1 as never, token: "k" as never }, createdAt: 5, parkedAt: 6 },
      holders: { [A]: hold, ['b"\\\n\u2028' as InstanceId]: { ...hold, seq: 4 } },
      leases: { ["l" as never]: lease },
    };
    const one = connect();
    const outside = new DatabaseSync(here.path, { timeout: 1_000 });
    let record = first;
    for (const field of Object.keys(changed) as (keyof SandboxRecord)[]) {
      record = { ...record, [field]: changed[field] } as SandboxRecord;
      one.transact("write", (tables) => tables.putRecord(record));
      // Fields of several states do not fit together, so the text itself is read.
      expect(JSON.parse(String(outside.prepare("SELECT body FROM records").get()?.body))).toEqual(record);
    }
    outside.close();
    expect(Object.keys(changed).sort()).toEqual(Object.keys(first).sort());
  });

  it("is one of a few thousand, and more records than that are found as well", async () => {
    const record = await someRecord();
    const one = connect();
    const name = (n: number) => `s${n}` as SandboxId & ThreadId;
    one.transact("write", (tables) => {
      for (let n = 0; n < 5_000; n += 1)
        tables.putRecord({ ...record, sandboxId: name(n), thread: name(n), revision: n });
      for (let n = 0; n < 5_000; n += 7)
        tables.putRecord({ ...record, sandboxId: name(n), thread: name(n), revision: -n });
    });
    for (let n = 0; n < 5_000; n += 1) {
      const found = one.transact("read", (tables) => tables.recordOf(USER, name(n)));
      expect(found?.revision).toBe(n % 7 === 0 ? -n : n);
    }
  });
});

describe("another process", () => {
  it("holds and lets go at the same time, and neither overwrites the other", async () => {
    const { store } = await openWithRecord();
    await reserve(store, "t2");
    const record = await store.find(USER, THREAD);
    if (record === null) throw new Error("no record");
    const { sandboxId, revision, generation } = record;
    const ready = {
      sandboxId,
      revision,
      actor: A,
      ref: "r" as never,
      place: "home",
      arrival: null,
      hold: null,
    } as const;
    await store.publish(ready);
    const children = [
      startChild("take", here.path, { argument: "300" }),
      startChild("take", here.path, { argument: "300" }),
    ];
    let taken = 0;
    let over = false;
    const ended = Promise.all(children.map((child) => child.ended)).then(() => {
      over = true;
    });
    while (!over) {
      taken += 1;
      const answer = await store.take({
        user: USER,
        thread: THREAD,
        instance: A,
        seq: taken,
        blank: null,
        orReserve: null,
      });
      expect(answer).toMatchObject({ kind: "held", record: { holders: { a: { seq: taken } } } });
      await store.unhold({ sandboxId, generation, instance: A, seq: taken, used: true });
      // Lets this process notice the children's end.
      if (taken % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await ended;
    expect(children.map(({ said }) => said)).toEqual([[{ taken: 300 }], [{ taken: 300 }]]);
    // Every hold and every release raised the revision by one: none was lost.
    const last = await store.get(sandboxId);
    expect(last).toEqual(expect.objectContaining({ holders: {}, revision: revision + 1 + 2 * (taken + 600) }));
    expect(await (await open()).get(sandboxId)).toEqual(last);
    expect((await beat(store, 2)).kind).toBe("ok");
  });
});

describe("a step that reads", () => {
  it("looks at the tables once, because it is not given a transaction", async () => {
    const looks: Record<string, number> = {};
    class Counting extends TransactionalStore {
      readonly kind = "counting";
      readonly isShared = false;
      watch = () => () => {};
      async close() {}
      protected async run<T>(operation: string, access: "read" | "write", step: (tables: Tables) => T): Promise<T> {
        const answer = () => {
          looks[operation] = (looks[operation] ?? 0) + 1;
          return operation === "sessions" || operation === "list" ? [] : null;
        };
        const meta = () => answer() ?? { epoch: "e", recovering: false, generation: 1 };
        if (access === "write") return null as T;
        looks[operation] = 0;
        return step(
          new Proxy({} as Tables, {
            get: (_, name) => (name === "isShared" ? false : name === "meta" ? meta : answer),
          }),
        );
      }
    }
    const store = new Counting();
    const reads = Object.getOwnPropertyNames(TransactionalStore.prototype).filter((name) => name !== "constructor");
    for (const name of reads) await Reflect.apply(store[name as "get"], store, ["x" as SandboxId]);
    const once = {
      sessions: 1,
      meta: 1,
      locate: 1,
      get: 1,
      find: 1,
      list: 1,
      tombstone: 1,
      tombstones: 1,
      findLease: 1,
      census: 1,
    };
    expect(looks).toEqual(once);
  });
});
