/** ready: its holders, and what an old request must not do to a new hold (rules 1, 5, 14). */

import type { UserId } from "@sandlot/contract";
import { holdOf, later, type StoreCase, stopOf, takeOf, UNKNOWN_SANDBOX, USER, unholdOf } from "./stage.ts";

export const holdingCases: readonly StoreCase[] = [
  {
    name: "two instances share one sandbox; it is parked when the last lets go",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const parked = await stage.ready(a, "t");
      const one = await stage.hold(parked, a, 1);
      const two = await stage.hold(parked, b, 1);
      expect([one.revision, two.revision]).toEqual([parked.revision + 1, parked.revision + 2]);
      expect(Object.keys(two.holders).sort()).toEqual(["a", "b"]);
      expect(two.parkedAt).toBe(null);
      const left = stage.some(await store.unhold(unholdOf(parked, a, 1)));
      expect(left).toMatchObject({ revision: parked.revision + 3 });
      expect(Object.keys(left.holders)).toEqual(["b"]);
      const last = stage.some(await store.unhold(unholdOf(parked, b, 1)));
      expect(last).toEqual(expect.objectContaining({ holders: {}, revision: parked.revision + 4 }));
      expect(last.parkedAt ?? 0).toBeGreaterThan(0);
      expect(await stage.now(parked.sandboxId)).toEqual(last);
    },
  },
  {
    name: "hold of what is not ready in this generation is gone, with the record as it is now",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const creating = await stage.creating(a, "creating");
      const stopping = await stage.stopping(a, "stopping");
      const ready = await stage.ready(a, "ready");
      for (const record of [creating, stopping]) {
        expect(await store.hold(holdOf(record, a, 1))).toEqual({ kind: "gone", record });
      }
      const other = { ...holdOf(ready, a, 1), generation: later(ready.generation) };
      expect(await store.hold(other)).toEqual({ kind: "gone", record: ready });
      const unknown = { ...holdOf(ready, a, 1), sandboxId: UNKNOWN_SANDBOX };
      expect(await store.hold(unknown)).toEqual({ kind: "gone", record: null });
    },
  },
  {
    name: "holding again keeps since, and the later counter",
    async run(stage) {
      const a = await stage.join("a");
      const first = await stage.ready(a, "t", 5);
      const again = await stage.hold(first, a, 9);
      stage.expect(again.holders[a]).toEqual({ ...first.holders[a], seq: 9 });
      const late = await stage.hold(first, a, 7);
      stage.expect(late.holders[a]).toEqual({ ...first.holders[a], seq: 9 });
    },
  },
  {
    name: "a release that is older than the hold leaves it alone",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const held = await stage.ready(a, "t", 5);
      expect(await store.unhold(unholdOf(held, a, 4))).toEqual(held);
      expect(await stage.now(held.sandboxId)).toEqual(held);
      expect((await store.unhold(unholdOf(held, a, 5)))?.holders).toEqual({});
    },
  },
  {
    name: "a late release of an old generation leaves the new one alone",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const held = await stage.ready(a, "t", 5);
      const old = { ...unholdOf(held, a, 99), generation: later(held.generation, -1) };
      expect(await store.unhold(old)).toEqual(held);
      expect(await stage.now(held.sandboxId)).toEqual(held);
    },
  },
  {
    name: "release never fails for being late, nor for having no session",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const held = await stage.ready(a, "t", 1);
      expect(await store.unhold(unholdOf(held, b, 1))).toEqual(held);
      expect(await store.unhold({ ...unholdOf(held, a, 1), sandboxId: UNKNOWN_SANDBOX })).toBe(null);
      await stage.endDeadSession(a);
      const parked = await stage.now(held.sandboxId);
      expect(await store.unhold(unholdOf(held, a, 1))).toEqual(parked);
      const stopping = await stage.stop(parked, b);
      expect(await store.unhold(unholdOf(held, a, 1))).toEqual(stopping);
    },
  },
  {
    name: "what arrived is told until somebody has used it",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const held = await stage.ready(a, "t", 1);
      expect(held.arrival).toBe("empty");
      expect((await store.unhold(unholdOf(held, a, 1, false)))?.arrival).toBe("empty");
      expect((await stage.take("t", a, 2)).arrival).toBe("empty");
      await stage.hold(held, b, 1);
      // Late, of another generation, or without a hold: none of these was a use.
      for (const late of [
        unholdOf(held, a, 1),
        { ...unholdOf(held, a, 9), generation: later(held.generation) },
        unholdOf(held, "nobody" as typeof a, 9),
      ])
        expect((await store.unhold(late))?.arrival).toBe("empty");
      expect(await store.unhold(unholdOf(held, a, 2))).toMatchObject({ arrival: null });
      expect((await store.unhold(unholdOf(held, b, 1, false)))?.arrival).toBe(null);
      expect((await stage.take("t", a, 3)).arrival).toBe(null);
    },
  },
  {
    name: "every change of holders raises the revision, so a plan made before it loses",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const parked = await stage.ready(a, "t");
      await stage.hold(parked, a, 1);
      const again = stage.some(await store.unhold(unholdOf(parked, a, 1)));
      expect(await store.stop(stopOf(parked, a))).toEqual({ kind: "lost", record: again });
      expect((await store.stop(stopOf(again, a))).kind).toBe("stopping");
    },
  },
  {
    name: "take finds the thread's sandbox and holds it, in one step",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const parked = await stage.ready(a, "t");
      const { generation, revision } = parked;
      const one = await stage.take("t", a, 3);
      expect(one).toEqual({ ...parked, holders: one.holders, parkedAt: null, revision: revision + 1 });
      expect(one.holders).toMatchObject({ a: { generation, seq: 3 } });
      expect(one.holders[a]?.since ?? 0).toBeGreaterThanOrEqual(parked.parkedAt ?? Number.POSITIVE_INFINITY);
      expect(await stage.now(parked.sandboxId)).toEqual(one);
      const two = await stage.take("t", b, 1);
      expect(Object.keys(two.holders).sort()).toEqual(["a", "b"]);
      expect(two.revision).toBe(revision + 2);
      // It ends like any other hold, and a plan made before it loses.
      expect((await store.stop(stopOf(parked, b))).kind).toBe("held");
      await store.unhold(unholdOf(parked, a, 3));
      expect((await store.unhold(unholdOf(parked, b, 1)))?.parkedAt ?? 0).toBeGreaterThan(0);
    },
  },
  {
    name: "take of what is not there, or not ready, is the record as it is, unchanged",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      expect(await store.take(takeOf("nobody", a, 1))).toEqual({ kind: "other", record: null });
      const creating = await stage.creating(a, "creating");
      const stopping = await stage.stopping(a, "stopping");
      for (const record of [creating, stopping]) {
        expect(await store.take(takeOf(record.thread ?? "", a, 1))).toEqual({ kind: "other", record });
        expect(await stage.now(record.sandboxId)).toEqual(record);
      }
      const { sandboxId, revision } = stopping;
      expect(await store.remove({ sandboxId, revision, actor: a })).toBe(true);
      expect(await store.take(takeOf("stopping", a, 1))).toEqual({ kind: "other", record: null });
    },
  },
  {
    name: "take never takes a blank, nor another user's thread of the same name",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      await stage.ready(a, null);
      await stage.ready(a, "t");
      const other = { ...takeOf("t", a, 1), user: "other" as UserId };
      expect(await store.take(other)).toEqual({ kind: "other", record: null });
      expect((await store.list()).every(({ holders }) => Object.keys(holders).length === 0)).toBe(true);
      const key = { user: "other" as UserId, thread: other.thread };
      const theirs = await stage.ready(a, null, null, { key });
      expect(await store.take(other)).toMatchObject({ kind: "held", record: { sandboxId: theirs.sandboxId } });
      expect((await store.find(USER, other.thread))?.holders).toEqual({});
    },
  },
  {
    name: "taking again keeps since, and the later counter; a release that is older leaves it alone",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const first = await stage.ready(a, "t", 5);
      const again = await stage.take("t", a, 9);
      expect(again.holders[a]).toEqual({ ...first.holders[a], seq: 9 });
      const late = await stage.take("t", a, 7);
      expect(late.holders[a]).toEqual({ ...first.holders[a], seq: 9 });
      expect(late.revision).toBe(first.revision + 2);
      expect(await store.unhold(unholdOf(first, a, 8))).toEqual(late);
      expect((await store.unhold(unholdOf(first, a, 9)))?.holders).toEqual({});
    },
  },
  {
    name: "take holds the generation that is there now",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const old = await stage.stop(await stage.ready(a, "t"), a);
      expect(await store.remove({ sandboxId: old.sandboxId, revision: old.revision, actor: a })).toBe(true);
      const now = await stage.ready(a, "t");
      const taken = await stage.take("t", a, 1);
      expect(taken.sandboxId).toBe(now.sandboxId);
      expect(taken.holders[a]?.generation).toBe(now.generation);
    },
  },
];
