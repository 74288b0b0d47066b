/** The pure plans: due ends, missing blanks, surplus engine objects. Limits come with their neighbours. */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { planExpiry, planPool, planReconcile } from "../../../src/lifecycle/housekeeping/plans.ts";
import { isAnonymous, isBlank, isHeld, type SandboxRecord } from "../../../src/store/record.ts";
import { anyRecord, BLANK, HELD, LEASED, objectOf, recordWith } from "../../support/records.ts";

const NOW = 1_000_000;

describe("planExpiry", () => {
  const limits = { idleTimeoutMs: 600, maxLifetimeMs: 5_000 };

  test.each([
    [599, []],
    [600, ["idle"]],
    [601, ["idle"]],
  ])("parked for %i of 600 ms: %j", (parkedFor, reasons) => {
    const record = recordWith({ createdAt: NOW - 1_000, parkedAt: NOW - parkedFor });
    expect(planExpiry([record], limits, NOW).map(({ reason }) => reason)).toEqual(reasons);
  });

  test.each([
    [4_999, []],
    [5_000, ["expired"]],
    [5_001, ["expired"]],
  ])("alive for %i of 5000 ms: %j", (aliveFor, reasons) => {
    const record = recordWith({ createdAt: NOW - aliveFor, parkedAt: NOW });
    expect(planExpiry([record], limits, NOW).map(({ reason }) => reason)).toEqual(reasons);
  });

  test("work inside postpones idleness, never the maximum lifetime", () => {
    const idle = recordWith({ createdAt: NOW - 1_000, parkedAt: NOW - 1_000 });
    const expired = recordWith({ createdAt: NOW - 9_000, parkedAt: NOW - 9_000 });
    const plan = planExpiry([idle, expired], limits, NOW);
    expect(plan.map(({ reason, unlessBusy }) => [reason, unlessBusy])).toEqual([
      ["idle", true],
      ["expired", false],
    ]);
  });

  test("0 switches each timeout off", () => {
    const old = recordWith({ createdAt: 0, parkedAt: 0 });
    expect(planExpiry([old], { idleTimeoutMs: 0, maxLifetimeMs: 0 }, NOW)).toEqual([]);
    expect(planExpiry([old], { idleTimeoutMs: 0, maxLifetimeMs: 1 }, NOW)).toMatchObject([{ reason: "expired" }]);
    expect(planExpiry([old], { idleTimeoutMs: 1, maxLifetimeMs: 0 }, NOW)).toMatchObject([{ reason: "idle" }]);
  });

  test("a blank is never idle, but it expires; what has no thread of its own and no holder ends at once", () => {
    const blank = recordWith({ ...BLANK, createdAt: NOW - 4_999, parkedAt: 0 });
    const oldBlank = recordWith({ ...BLANK, createdAt: NOW - 5_000, parkedAt: 0 });
    const anonymous = recordWith({ thread: "~ab", createdAt: NOW, parkedAt: NOW });
    const plan = planExpiry([blank, oldBlank, anonymous], limits, NOW);
    expect(plan.map(({ record, reason }) => [record, reason])).toEqual([
      [oldBlank, "expired"],
      [anonymous, "released"],
    ]);
  });

  test("for any fleet: never what is held or under way, each at most once, and exactly what is due", () => {
    fc.assert(
      fc.property(
        fc.array(anyRecord([NOW, NOW - 600, NOW - 5_000]), { maxLength: 20 }),
        fc.constantFrom(0, 599, 600, 601),
        fc.constantFrom(0, 4_999, 5_000, 5_001),
        (records, idleTimeoutMs, maxLifetimeMs) => {
          const plan = planExpiry(records, { idleTimeoutMs, maxLifetimeMs }, NOW);
          const due = new Set(plan.map(({ record }) => record));
          expect(due.size).toBe(plan.length);
          for (const record of records) {
            const free = record.state === "ready" && !isHeld(record);
            const expired = maxLifetimeMs > 0 && NOW - record.createdAt >= maxLifetimeMs;
            const idle = idleTimeoutMs > 0 && !isBlank(record) && NOW - (record.parkedAt ?? 0) >= idleTimeoutMs;
            expect(due.has(record)).toBe(free && (isAnonymous(record.thread) || expired || idle));
          }
        },
      ),
    );
  });
});

describe("planPool", () => {
  const named = (name: string, hash: string) => ({ name, hash, blueprint: {} });
  const blueprints = { a: named("a", "hash-a"), b: named("b", "hash-b") };
  const settings = (pool: Record<string, number>, max: number, maxPerEngine = 0) =>
    ({ pool, blueprints, limits: { max, maxPerEngine } }) as unknown as Parameters<typeof planPool>[1];
  const blank = (hash: string, given = {}) => recordWith({ ...BLANK, blueprintHash: hash, ...given });
  const coming = (hash: string) => blank(hash, { state: "creating", actor: "i", ref: null, parkedAt: null });
  const yes = () => true;

  test("makes what is missing, counting what is on its way", () => {
    const records = [blank("hash-a"), coming("hash-a"), recordWith(HELD)];
    expect(planPool(records, settings({ a: 4, b: 1 }, 100), yes)).toEqual({ create: ["a", "a", "b"], stop: [] });
  });

  test("stays within the limit, to the last place", () => {
    const records = [recordWith(HELD), recordWith()];
    expect(planPool(records, settings({ a: 3 }, 2), yes).create).toEqual([]);
    expect(planPool(records, settings({ a: 3 }, 3), yes).create).toEqual(["a"]);
    expect(planPool(records, settings({ a: 3 }, 4), yes).create).toEqual(["a", "a"]);
  });

  test("leaves the room that other engines have taken, and stays within the limit of its own", () => {
    const records = [recordWith(HELD)];
    expect(planPool(records, settings({ a: 3 }, 6), yes, 5).create).toEqual(["a"]);
    expect(planPool(records, settings({ a: 3 }, 6), yes, 6).create).toEqual([]);
    expect(planPool(records, settings({ a: 3 }, 20, 3), yes, 5).create).toEqual(["a", "a"]);
    expect(planPool(records, settings({ a: 3 }, 20, 1), yes, 5).create).toEqual([]);
  });

  test("ends the surplus, keeping the oldest", () => {
    const [old, middle, young] = [1, 2, 3].map((createdAt) => blank("hash-a", { createdAt }));
    const plan = planPool([young!, old!, middle!], settings({ a: 1 }, 9), yes);
    expect(plan.create).toEqual([]);
    expect(plan.stop.map(({ record, reason }) => [record, reason])).toEqual([
      [middle, "surplus"],
      [young, "surplus"],
    ]);
  });

  test("replaces a blank of a blueprint that is no longer configured, when it may", () => {
    const stale = blank("hash-old");
    expect(planPool([stale], settings({ a: 1 }, 9), yes)).toEqual({
      create: ["a"],
      stop: [{ record: stale, reason: "stale-blueprint" }],
    });
    expect(planPool([stale], settings({ a: 1 }, 9), () => false).stop).toEqual([]);
  });

  test("keeps nothing ready without a pool", () => {
    const left = blank("hash-a");
    expect(planPool([left], settings({}, 9), yes).stop.map(({ record }) => record)).toEqual([left]);
    expect(planPool([left], settings({ a: 0 }, 9), yes).stop).toEqual([{ record: left, reason: "surplus" }]);
  });

  test("two names of one blueprint share its blanks: their numbers add up", () => {
    const twins = { ...settings({ a: 1, c: 1 }, 9), blueprints: { ...blueprints, c: named("c", "hash-a") } };
    const at = (records: readonly SandboxRecord[]) => planPool(records, twins as typeof twins & never, yes);
    expect(at([]).create).toHaveLength(2);
    expect(at([blank("hash-a")]).create).toHaveLength(1);
    expect(at([blank("hash-a"), blank("hash-a")])).toEqual({ create: [], stop: [] });
    expect(at([blank("hash-a"), blank("hash-a"), blank("hash-a")]).stop).toHaveLength(1);
  });

  test("for any fleet: carried out, it has its numbers or is full, never over the limit, and then wants nothing more", () => {
    fc.assert(
      fc.property(
        fc.array(anyRecord([1, 2]), { maxLength: 12 }),
        fc.record({ a: fc.nat(4), b: fc.nat(4) }),
        fc.integer({ min: 1, max: 14 }),
        (records, pool, max) => {
          const plan = planPool(records, settings(pool, max), yes);
          for (const { record } of plan.stop) expect(isBlank(record)).toBe(true);
          expect(new Set(plan.stop.map(({ record }) => record)).size).toBe(plan.stop.length);
          expect(plan.create.length).toBeLessThanOrEqual(Math.max(0, max - records.length));
          const hashOf = { a: "hash-a", b: "hash-b" } as const;
          const stopped = new Set(plan.stop.map(({ record }) => record));
          const made = plan.create.map((name) => blank(hashOf[name as "a" | "b"]));
          const after = [...records.filter((record) => !stopped.has(record)), ...made];
          const again = planPool(after, settings(pool, max), yes);
          expect(again.stop).toEqual([]);
          if (after.length >= max) expect(again.create).toEqual([]);
          const full = records.length + made.length >= max;
          for (const name of ["a", "b"] as const) {
            const blanks = after.filter((record) => record.thread === null && record.blueprintHash === hashOf[name]);
            const ready = blanks.filter(({ state }) => state === "ready").length;
            expect(ready).toBeLessThanOrEqual(pool[name]);
            const counted = blanks.filter(({ state }) => state !== "stopping").length;
            if (!full) expect(counted).toBeGreaterThanOrEqual(pool[name]);
          }
        },
      ),
    );
  });
});

describe("planReconcile", () => {
  const keyOf = ({ thread }: SandboxRecord) => (thread === null ? null : `key-${thread}`);
  const plan = (objects: Parameters<typeof planReconcile>[0], records: readonly SandboxRecord[]) =>
    planReconcile(objects, records, keyOf);

  test("is empty when engine and store agree", () => {
    const records = [recordWith(), recordWith({ thread: "t2", ...HELD }), recordWith(BLANK)];
    const objects = records.map((record) => objectOf(record));
    expect(plan(objects, records)).toEqual({ superseded: [], unknown: [], missing: [] });
  });

  test("finds objects that no record knows", () => {
    const stranger = objectOf(recordWith());
    expect(plan([stranger], [recordWith({ state: "creating", ref: null })]).unknown).toEqual([stranger]);
  });

  test.each([
    [9, "superseded"],
    [10, "unknown"],
    [11, "unknown"],
  ] as const)("an unknown object of generation %i, where the thread's record has 10, is %s", (generation, where) => {
    const record = recordWith({ thread: "t", generation: 10 });
    const object = objectOf(recordWith({ generation }), { threadKey: "key-t" as never });
    const { superseded, unknown } = plan([objectOf(record), object], [record]);
    expect({ superseded, unknown }).toEqual({ superseded: [], unknown: [], [where]: [object] });
  });

  test("an unknown blank is not superseded by anything", () => {
    const record = recordWith({ thread: "t", generation: 10 });
    const object = objectOf(recordWith({ generation: 1, ...BLANK }));
    expect(plan([object], [record]).superseded).toEqual([]);
  });

  test("asks about a ready record whose object is dead or not shown, and about no other", () => {
    const dead = recordWith();
    const gone = recordWith({ thread: "t2" });
    const fine = recordWith({ thread: "t3" });
    const creating = recordWith({ thread: "t4", state: "creating", ref: null });
    const stopping = recordWith({ thread: "t5", state: "stopping" });
    const unclear = recordWith({ thread: "t6" });
    const objects = [
      { ...objectOf(dead), liveness: "dead" as const },
      objectOf(fine),
      { ...objectOf(unclear), liveness: "unknown" as const },
    ];
    expect(plan(objects, [dead, gone, fine, creating, stopping, unclear]).missing).toEqual([dead, gone]);
  });

  test("for any fleet: no known object is touched, and every unknown one is in exactly one list", () => {
    const arbitrary = fc.array(anyRecord([1]), { maxLength: 12 });
    fc.assert(
      fc.property(
        arbitrary,
        arbitrary,
        fc.array(fc.nat(3), { minLength: 12, maxLength: 12 }),
        (known, others, ages) => {
          const strangers = others.map((record, index) =>
            objectOf({ ...record, generation: ages[index] as never }, { threadKey: "key-t" as never }),
          );
          const objects = [...known.map((record) => objectOf(record)), ...strangers];
          const { superseded, unknown, missing } = plan(objects, known);
          expect([...superseded, ...unknown].map(({ ref }) => ref).sort()).toEqual(
            strangers.map(({ ref }) => ref).sort(),
          );
          expect(missing).toEqual([]);
          expect(plan([], known).missing).toEqual(known.filter(({ state, ref }) => state === "ready" && ref !== null));
        },
      ),
    );
  });

  test("a remote lease counts as held everywhere", () => {
    expect(isHeld(recordWith(LEASED))).toBe(true);
    expect(planExpiry([recordWith({ ...LEASED, createdAt: 0 })], { idleTimeoutMs: 1, maxLifetimeMs: 1 }, NOW)).toEqual(
      [],
    );
  });
});
