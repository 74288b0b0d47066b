/** `take`: the thread's sandbox, else a blank, else a reservation, in one step (rules 1, 2, 4, 13, 14). */

import type { BlueprintHash, SandboxId } from "@sandlot/contract";
import type { TakeRequest } from "../../store/store.ts";
import { type Stage, type StoreCase, takeOf } from "./stage.ts";

const NO_LIMITS = { max: null, maxPerUser: null, maxPerEngine: null };

/** Everything that a caller can request from `take`. */
function anything(stage: Stage, more: Partial<TakeRequest> = {}): Pick<TakeRequest, "blank" | "orReserve"> {
  const record = stage.newRecord();
  return {
    blank: { blueprintHash: record.blueprintHash, except: [] },
    orReserve: { ...record, limits: NO_LIMITS },
    ...more,
  };
}

export const takingCases: readonly StoreCase[] = [
  {
    name: "take holds what the thread has, although there is a blank and room",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      await stage.ready(a, null);
      const parked = await stage.ready(a, "t");
      const answer = await store.take(takeOf("t", a, 7, anything(stage)));
      expect(answer).toMatchObject({
        kind: "held",
        record: { sandboxId: parked.sandboxId, holders: { a: { seq: 7 } } },
      });
      expect((await store.list()).length).toBe(2);
    },
  },
  {
    name: "take gives neither a blank nor a reservation to a thread whose sandbox is being made or ended",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      await stage.ready(a, null);
      const creating = await stage.creating(a, "making");
      const stopping = await stage.stopping(a, "ending");
      expect(await store.take(takeOf("making", a, 1, anything(stage)))).toEqual({ kind: "other", record: creating });
      expect(await store.take(takeOf("ending", a, 2, anything(stage)))).toEqual({ kind: "other", record: stopping });
      expect((await store.list()).length).toBe(3);
    },
  },
  {
    name: "take picks a blank of the blueprint, and gives a generation for it that no other caller gets",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const blank = await stage.ready(a, null);
      await stage.ready(a, null, null, { blueprintHash: "another" as BlueprintHash });
      const seen = new Set<number>([blank.generation]);
      for (const seq of [1, 2, 3]) {
        const answer = await store.take(takeOf(`t${seq}`, a, seq, anything(stage)));
        expect(answer).toMatchObject({ kind: "blank", record: blank });
        if (answer.kind !== "blank") throw new Error(`take answered ${answer.kind}`);
        expect(answer.generation).toBeGreaterThan(Math.max(...seen));
        seen.add(answer.generation);
      }
      // Nothing is claimed yet, and only the counter was written.
      expect(await stage.now(blank.sandboxId)).toEqual(blank);
      const reserved = await stage.creating(a, "later");
      expect(reserved.generation).toBeGreaterThan(Math.max(...seen));
    },
  },
  {
    name: "take picks another blank for each caller that asks at the same time, and none that the caller excepts",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const blanks = [await stage.ready(a, null), await stage.ready(a, null), await stage.ready(a, null)];
      const picked = new Set<SandboxId>();
      for (const seq of [4, 5, 6]) {
        const answer = await store.take(takeOf(`t${seq}`, a, seq, anything(stage)));
        if (answer.kind === "blank") picked.add(answer.record.sandboxId);
      }
      expect(picked.size).toBe(3);
      const [first, ...others] = blanks.map(({ sandboxId }) => sandboxId);
      const blank = { blueprintHash: stage.newRecord().blueprintHash, except: others };
      for (const seq of [7, 8, 9]) {
        const answer = await store.take(takeOf("t", a, seq, { blank }));
        expect(answer).toMatchObject({ kind: "blank", record: { sandboxId: first } });
      }
      const none = { ...blank, except: blanks.map(({ sandboxId }) => sandboxId) };
      expect(await store.take(takeOf("t", a, 9, { blank: none }))).toEqual({ kind: "other", record: null });
      expect(await store.take(takeOf("t", a, 9, anything(stage, { blank: none })))).toMatchObject({ kind: "reserved" });
    },
  },
  {
    name: "a blank that take gave can be bound once",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      await stage.ready(a, null);
      const bindFor = async (thread: string, instance: typeof a) => {
        const answer = await store.take(takeOf(thread, instance, 1, anything(stage)));
        if (answer.kind !== "blank") throw new Error(`take answered ${answer.kind}`);
        const { sandboxId, revision, token } = answer.record;
        const { user, thread: name } = takeOf(thread, instance, 1);
        const key = { user, thread: name, generation: answer.generation, token };
        return () => store.bind({ sandboxId, revision, ...key, instance, seq: 2, maxPerUser: null });
      };
      const one = await bindFor("one", a);
      const other = await bindFor("other", b);
      expect(await one()).toMatchObject({ kind: "bound" });
      expect(await other()).toEqual({ kind: "taken" });
    },
  },
  {
    name: "take reserves where there is no blank: key, room and generation in the same step",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const wanted = anything(stage);
      const answer = await store.take(takeOf("t", a, 1, wanted));
      const { sandboxId, token } = wanted.orReserve ?? {};
      const intent = { state: "creating", actor: a, thread: "t", sandboxId, token, revision: 1 };
      expect(answer).toMatchObject({ kind: "reserved", record: intent });
      if (answer.kind !== "reserved") return;
      expect(await stage.now(answer.record.sandboxId)).toEqual(answer.record);
      expect(await store.take(takeOf("t", b, 1, anything(stage)))).toEqual({ kind: "other", record: answer.record });
      expect(await stage.tryReserve(b, "t")).toEqual({ kind: "exists", record: answer.record });
    },
  },
  {
    name: "take keeps the limits of fleet and user, and takes the blank although the fleet is full",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      await stage.ready(a, "t");
      const within = (max: number | null, maxPerUser: number | null) => {
        const { blank, orReserve } = anything(stage);
        return { blank, orReserve: orReserve && { ...orReserve, limits: { max, maxPerUser, maxPerEngine: null } } };
      };
      const full = { kind: "full", max: 1 };
      expect(await store.take(takeOf("t2", a, 1, within(1, null)))).toMatchObject({ ...full, scope: "fleet" });
      expect(await store.take(takeOf("t2", a, 2, within(null, 1)))).toMatchObject({ ...full, scope: "user" });
      expect(await store.take(takeOf("t2", a, 3, within(1, 1)))).toMatchObject({ ...full, scope: "user" });
      expect((await store.list()).length).toBe(1);
      // The thread's own sandbox is held, whatever the limits.
      expect(await store.take(takeOf("t", a, 4, within(1, 1)))).toMatchObject({ kind: "held" });
      await stage.ready(a, null);
      expect(await store.take(takeOf("t2", a, 5, within(1, null)))).toMatchObject({ kind: "blank" });
      expect((await store.list()).length).toBe(2);
    },
  },
  {
    name: "take for a thread that must exist gives nothing new",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      await stage.ready(a, null);
      expect(await store.take(takeOf("t", a, 1))).toEqual({ kind: "other", record: null });
      expect((await store.list()).length).toBe(1);
    },
  },
  {
    name: "take gives nothing while the store recovers, or to who has no session",
    begins: "recovering",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      expect(await store.take(takeOf("t", a, 1, anything(stage)))).toMatchObject({ kind: "recovering" });
      await stage.endRecovery();
      const unknown = takeOf("t", "unknown" as typeof a, 1, anything(stage));
      expect(await store.take(unknown)).toEqual({ kind: "unknown-session" });
      expect(await store.list()).toEqual([]);
    },
  },
  {
    name: "callers at the same time: one reserves, the others find it, and the limit holds",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const second = await stage.second();
      const limits = { max: 3, maxPerUser: null, maxPerEngine: null };
      const ask = (thread: string, seq: number) => {
        const orReserve = { ...stage.newRecord(), limits };
        return (seq % 2 === 0 ? store : second).take(takeOf(thread, a, seq, { orReserve }));
      };
      const same = await Promise.all(Array.from({ length: 10 }, (_, seq) => ask("same", seq)));
      expect(same.filter(({ kind }) => kind === "reserved").length).toBe(1);
      expect(same.filter(({ kind }) => kind === "other").length).toBe(9);
      const many = await Promise.all(Array.from({ length: 10 }, (_, seq) => ask(`t${seq}`, seq)));
      expect(many.filter(({ kind }) => kind === "reserved").length).toBe(2);
      expect(many.filter(({ kind }) => kind === "full").length).toBe(8);
    },
  },
  {
    name: "a release of what was used ends the wait for the confirmation of its bind; a release without use does not",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      for (const used of [true, false]) {
        await stage.ready(a, null);
        const thread = `t-${used}`;
        const answer = await store.take(takeOf(thread, a, 1, anything(stage)));
        if (answer.kind !== "blank") throw new Error(`take answered ${answer.kind}`);
        const { sandboxId, revision, token } = answer.record;
        const { generation } = answer;
        const { user, thread: name } = takeOf(thread, a, 1);
        const to = { user, thread: name, generation, token, instance: a, seq: 2, maxPerUser: null };
        expect(await store.bind({ sandboxId, revision, ...to })).toMatchObject({ kind: "bound" });
        await store.unhold({ sandboxId, generation, instance: a, seq: 2, used });
        const parked = await stage.readyNow(sandboxId);
        expect(parked.boundFrom === null).toBe(used);
        // A late confirmation changes nothing.
        await store.confirmBound(sandboxId, generation, "empty");
        expect((await stage.readyNow(sandboxId)).arrival).toBe(used ? null : "empty");
      }
    },
  },
];
