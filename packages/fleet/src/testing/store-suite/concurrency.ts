/** Two connections at once: each race has exactly one winner (rules 1, 2, 13). */

import type { ThreadId, UserId } from "@sandlot/contract";
import type { Store } from "../../store/store.ts";
import { bindOf } from "./binding.ts";
import { holdOf, ids, nextGeneration, type Stage, type StoreCase, stopOf, takeOf, USER, unholdOf } from "./stage.ts";

export const concurrencyCases: readonly StoreCase[] = [
  {
    name: "the fleet's limit is never exceeded",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const limits = { max: 5, maxPerUser: null, maxPerEngine: null };
      const answers = await race(stage, 12, (at, n) =>
        stage.tryReserve(a, n % 3 === 0 ? null : `t${n}`, { limits }, at),
      );
      expect(kinds(answers)).toEqual({ reserved: 5, full: 7 });
      expect((await store.list()).length).toBe(5);
    },
  },
  {
    name: "a user's limit is never exceeded, by reserving and binding together",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const blanks = [await stage.ready(a, null), await stage.ready(a, null), await stage.ready(a, null)];
      const requests = await Promise.all(blanks.map((blank, n) => bindOf(stage, blank, a, `bind${n}`)));
      const limits = { max: null, maxPerUser: 2, maxPerEngine: null };
      const answers = await race<{ kind: string }>(stage, 8, (at, n) => {
        const request = requests[n];
        return request === undefined
          ? stage.tryReserve(a, `t${n}`, { limits }, at)
          : at.bind({ ...request, maxPerUser: 2 });
      });
      expect((kinds(answers).reserved ?? 0) + (kinds(answers).bound ?? 0)).toBe(2);
      expect((await store.list()).filter(({ user }) => user === USER).length).toBe(2);
    },
  },
  {
    name: "one thread gets one sandbox",
    async run(stage) {
      const a = await stage.join("a");
      const answers = await race(stage, 8, (at) => stage.tryReserve(a, "t", {}, at));
      stage.expect(kinds(answers)).toEqual({ reserved: 1, exists: 7 });
    },
  },
  {
    name: "one blank goes to one thread",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const blank = await stage.ready(a, null);
      const requests = await Promise.all(["t0", "t1", "t2", "t3"].map((thread) => bindOf(stage, blank, a, thread)));
      const answers = await race(stage, 4, (at, n) => at.bind(requests[n] as (typeof requests)[0]));
      expect(kinds(answers)).toEqual({ bound: 1, taken: 3 });
      const threads = ["t0", "t1", "t2", "t3"].map((thread) => store.find(USER, thread as ThreadId));
      expect((await Promise.all(threads)).filter((record) => record !== null).length).toBe(1);
    },
  },
  {
    name: "one thread takes one of two blanks",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const blanks = [await stage.ready(a, null), await stage.ready(a, null)];
      const requests = await Promise.all(blanks.map((blank) => bindOf(stage, blank, a, "t")));
      const answers = await race(stage, 2, (at, n) => at.bind(requests[n] as (typeof requests)[0]));
      expect(kinds(answers)).toEqual({ bound: 1, exists: 1 });
      const left = await store.list({ blankOf: blanks[0]?.blueprintHash ?? "" });
      expect(left.length).toBe(1);
      expect(ids(left).every((id) => ids(blanks).includes(id))).toBe(true);
    },
  },
  {
    name: "hold and stop: one of them wins, and the other is told",
    async run(stage) {
      const { expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const second = await stage.second();
      for (let n = 0; n < 10; n += 1) {
        const parked = await stage.ready(a, `t${n}`);
        const [held, stopped] = await Promise.all([
          (n % 2 === 0 ? stage.store : second).hold(holdOf(parked, a, n)),
          (n % 2 === 0 ? second : stage.store).stop(stopOf(parked, b)),
        ]);
        const now = await stage.now(parked.sandboxId);
        if (held.kind === "held")
          expect([stopped.kind, now.state, Object.keys(now.holders)]).toEqual(["held", "ready", ["a"]]);
        else expect([held.kind, stopped.kind, now.state, now.holders]).toEqual(["gone", "stopping", "stopping", {}]);
      }
    },
  },
  {
    name: "take and stop: one of them wins, and the other is told",
    async run(stage) {
      const { expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const second = await stage.second();
      for (let n = 0; n < 10; n += 1) {
        const parked = await stage.ready(a, `t${n}`);
        const [taken, stopped] = await Promise.all([
          (n % 2 === 0 ? stage.store : second).take(takeOf(`t${n}`, a, n)),
          (n % 2 === 0 ? second : stage.store).stop(stopOf(parked, b)),
        ]);
        const now = await stage.now(parked.sandboxId);
        const both = [taken.kind, stopped.kind, now.state, Object.keys(now.holders)];
        expect(both).toEqual(
          taken.kind === "held" ? ["held", "held", "ready", ["a"]] : ["other", "stopping", "stopping", []],
        );
      }
    },
  },
  {
    name: "what one connection wrote, the next step of the other goes by, back and forth",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const second = await stage.second();
      const parked = await stage.ready(a, "t");
      const { sandboxId, revision } = parked;
      for (let n = 0; n < 10; n += 1) {
        const [one, other] = n % 2 === 0 ? [store, second] : [second, store];
        expect((await stage.take("t", a, n, one)).revision).toBe(revision + 4 * n + 1);
        expect((await stage.take("t", b, n, other)).revision).toBe(revision + 4 * n + 2);
        expect(Object.keys((await one.unhold(unholdOf(parked, b, n)))?.holders ?? {})).toEqual(["a"]);
        expect((await other.unhold(unholdOf(parked, a, n)))?.holders).toEqual({});
        expect(await one.get(sandboxId)).toEqual(await other.find(USER, "t" as ThreadId));
      }
      await second.leave(b);
      expect(await store.take(takeOf("t", b, 99))).toEqual({ kind: "unknown-session" });
      await second.stop(stopOf(await stage.now(sandboxId), a));
      expect((await store.take(takeOf("t", a, 99))).kind).toBe("other");
    },
  },
  {
    name: "generations are given once",
    async run(stage) {
      const given = await race(stage, 40, (at) => nextGeneration(at));
      stage.expect(new Set(given).size).toBe(40);
    },
  },
  {
    name: "every write raises the revision, so none is lost",
    async run(stage) {
      const { store, expect } = stage;
      const users = ["a", "b", "c", "d"];
      const instances = await Promise.all(users.map((name) => stage.join(name)));
      const parked = await stage.ready(instances[0] as (typeof instances)[0], null, null, {
        key: { user: "u" as UserId, thread: "t" as ThreadId },
      });
      await race(stage, 4, (at, n) => at.hold(holdOf(parked, instances[n] as (typeof instances)[0], 1)));
      const held = await stage.now(parked.sandboxId);
      expect(held.revision).toBe(parked.revision + 4);
      expect(Object.keys(held.holders).sort()).toEqual(users);
      await race(stage, 4, (at, n) => at.unhold(unholdOf(parked, instances[n] as (typeof instances)[0], 1)));
      expect(await store.get(parked.sandboxId)).toEqual(
        expect.objectContaining({ revision: parked.revision + 8, holders: {} }),
      );
    },
  },
];

/** Runs `count` steps at once, alternating between two connections. */
async function race<T>(stage: Stage, count: number, step: (at: Store, n: number) => Promise<T>): Promise<T[]> {
  const second = await stage.second();
  return Promise.all(Array.from({ length: count }, (_, n) => step(n % 2 === 0 ? stage.store : second, n)));
}

function kinds(answers: readonly { readonly kind: string }[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { kind } of answers) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}
