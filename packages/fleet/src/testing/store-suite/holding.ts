/** ready: who holds it, and what an old request may not do to a new hold (rules 1, 5, 14). */

import { holdOf, later, type StoreCase, stopOf, UNKNOWN_SANDBOX } from "./stage.ts";

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
      const left = stage.some(await store.unhold(holdOf(parked, a, 1)));
      expect(left).toMatchObject({ parkedAt: null, revision: parked.revision + 3 });
      const last = stage.some(await store.unhold(holdOf(parked, b, 1)));
      expect(last).toMatchObject({ holders: {}, revision: parked.revision + 4 });
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
      expect(await store.unhold(holdOf(held, a, 4))).toEqual(held);
      expect(await stage.now(held.sandboxId)).toEqual(held);
      expect((await store.unhold(holdOf(held, a, 5)))?.holders).toEqual({});
    },
  },
  {
    name: "a late release of an old generation leaves the new one alone",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const held = await stage.ready(a, "t", 5);
      const old = { ...holdOf(held, a, 99), generation: later(held.generation, -1) };
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
      expect(await store.unhold(holdOf(held, b, 1))).toEqual(held);
      expect(await store.unhold({ ...holdOf(held, a, 1), sandboxId: UNKNOWN_SANDBOX })).toBe(null);
      await stage.bury(a);
      const parked = await stage.now(held.sandboxId);
      expect(await store.unhold(holdOf(held, a, 1))).toEqual(parked);
      const stopping = await stage.stop(parked, b);
      expect(await store.unhold(holdOf(held, a, 1))).toEqual(stopping);
    },
  },
  {
    name: "every change of holders raises the revision, so a plan made before it loses",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const parked = await stage.ready(a, "t");
      await stage.hold(parked, a, 1);
      const again = stage.some(await store.unhold(holdOf(parked, a, 1)));
      expect(await store.stop(stopOf(parked, a))).toEqual({ kind: "lost", record: again });
      expect((await store.stop(stopOf(again, a))).kind).toBe("stopping");
    },
  },
];
