/** Which instances are alive: beats, healing, ending dead sessions, leaving (rules 5 and 6). */

import type { Epoch } from "@sandlot/contract";
import { holdOf, identityOf, later, nextGeneration, type StoreCase, stopOf, takeOf, UNKNOWN_SANDBOX } from "./stage.ts";

export const sessionCases: readonly StoreCase[] = [
  {
    name: "a first beat begins a session and tells the epoch",
    begins: "recovering",
    async run(stage) {
      const { store, expect } = stage;
      const { epoch } = await store.meta();
      const answer = await stage.beat("a", 1, { register: true });
      const sessions = await store.sessions();
      // The answer carries the store's clock, which also dates sessions and records.
      const now = sessions[0]?.lastBeatAt;
      expect(answer).toEqual({ kind: "ok", epoch, recovering: true, lost: [], now });
      expect(sessions.length).toBe(1);
      expect(sessions[0]).toMatchObject({ instance: "a", beat: 1, identity: identityOf("a") });
    },
  },
  {
    name: "a beat without a session is unknown-session, and begins none",
    async run(stage) {
      stage.expect(await stage.beat("a", 7)).toEqual({ kind: "unknown-session" });
      stage.expect(await stage.store.sessions()).toEqual([]);
    },
  },
  {
    name: "a beat of another epoch is new-epoch, and changes nothing",
    async run(stage) {
      const { store, expect } = stage;
      await stage.join("a");
      const { epoch } = await store.meta();
      const other = await stage.beat("a", 5, { epoch: "another-life" as Epoch, register: true });
      expect(other).toEqual({ kind: "new-epoch", epoch });
      expect((await store.sessions())[0]).toMatchObject({ beat: 1 });
      expect((await stage.beat("a", 2, { epoch })).kind).toBe("ok");
    },
  },
  {
    name: "a later beat counts, an older or equal one is ignored",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      expect((await stage.beat("a", 5)).kind).toBe("ok");
      const held = await stage.ready(a, "t", 3);
      // Late, and older than the hold it does not name.
      for (const beat of [4, 5])
        expect(await stage.beat("a", beat, { asOf: 9 })).toMatchObject({ kind: "ok", lost: [] });
      expect((await store.sessions())[0]).toMatchObject({ beat: 5 });
      expect(await stage.now(held.sandboxId)).toEqual(held);
    },
  },
  {
    name: "every beat that is answered tells the store's clock, also one that is ignored",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const { createdAt } = await stage.creating(a, "t");
      let clock = createdAt;
      for (const beat of [2, 2, 1, 3]) {
        const answer = await stage.beat("a", beat);
        const now = answer.kind === "ok" ? answer.now : Number.NaN;
        expect(now).toBeGreaterThanOrEqual(clock);
        expect(now).toBeGreaterThanOrEqual((await store.sessions())[0]?.lastBeatAt ?? Number.NaN);
        clock = now;
      }
    },
  },
  {
    name: "a beat heals a release that got lost, and parks",
    async run(stage) {
      const a = await stage.join("a");
      const held = await stage.ready(a, "t", 3);
      stage.expect(await stage.beat("a", 2, { held: [], asOf: 3 })).toMatchObject({ kind: "ok", lost: [] });
      const healed = await stage.now(held.sandboxId);
      stage
        .expect(healed)
        .toEqual(
          stage.expect.objectContaining({ holders: {}, arrival: null, revision: held.revision + 1, state: "ready" }),
        );
      stage.expect(healed.parkedAt ?? 0).toBeGreaterThanOrEqual(held.createdAt);
    },
  },
  {
    name: "a beat leaves a hold alone that was asked for after it was composed",
    async run(stage) {
      const a = await stage.join("a");
      const held = await stage.ready(a, "t", 3);
      await stage.beat("a", 2, { held: [], asOf: 2 });
      stage.expect(await stage.now(held.sandboxId)).toEqual(held);
    },
  },
  {
    name: "a beat that names its holds leaves them, and names nobody else's",
    async run(stage) {
      const a = await stage.join("a");
      const b = await stage.join("b");
      const mine = await stage.ready(a, "t1", 1);
      const theirs = await stage.ready(b, "t2", 1);
      const { sandboxId, generation } = mine;
      const answer = await stage.beat("a", 2, { held: [{ sandboxId, generation }], asOf: 9 });
      stage.expect(answer).toMatchObject({ kind: "ok", lost: [] });
      stage.expect(await stage.now(mine.sandboxId)).toEqual(mine);
      stage.expect(await stage.now(theirs.sandboxId)).toEqual(theirs);
    },
  },
  {
    name: "a beat that names another generation of a sandbox heals the old hold",
    async run(stage) {
      const a = await stage.join("a");
      const held = await stage.ready(a, "t", 1);
      const { sandboxId, generation } = held;
      const answer = await stage.beat("a", 2, { held: [{ sandboxId, generation: later(generation) }], asOf: 9 });
      stage.expect(answer).toMatchObject({ lost: [{ sandboxId, generation: generation + 1, reason: "superseded" }] });
      stage.expect(await stage.now(sandboxId)).toEqual(stage.expect.objectContaining({ holders: {} }));
    },
  },
  {
    name: "a beat tells which holds were lost, and why",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const destroyed = await stage.ready(a, "destroyed", 1);
      await stage.stop(destroyed, b, { mode: { kind: "force" }, reason: "destroyed" });
      const crashed = await stage.ready(a, "crashed", 1);
      const crashing = await stage.stop(crashed, b, { mode: { kind: "dead" }, reason: "crashed" });
      const { sandboxId, revision } = crashing;
      expect(await store.remove({ sandboxId, revision, actor: b })).toBe(true);
      const unheld = await stage.ready(a, "unheld", null);
      const named = [destroyed, crashed, unheld].map(({ sandboxId, generation }) => ({ sandboxId, generation }));
      const answer = await stage.beat("a", 2, {
        held: [...named, { sandboxId: UNKNOWN_SANDBOX, generation: later(unheld.generation) }],
        asOf: 9,
      });
      const lost = answer.kind === "ok" ? answer.lost : [];
      expect(lost.length).toBe(4);
      expect(Object.fromEntries(lost.map(({ sandboxId, reason }) => [sandboxId, reason]))).toEqual({
        [destroyed.sandboxId]: "destroyed",
        [crashed.sandboxId]: "crashed",
        [unheld.sandboxId]: "session-lost",
        [UNKNOWN_SANDBOX]: "session-lost",
      });
    },
  },
  {
    name: "a beat keeps the generation counter ahead of what the instance has seen",
    async run(stage) {
      const { store, expect } = stage;
      await stage.join("a");
      const floor = later(await nextGeneration(store), 1_000_000);
      await stage.beat("a", 2, { generationFloor: floor });
      expect(await nextGeneration(store)).toBeGreaterThan(floor);
      await stage.beat("a", 3, { generationFloor: 5 });
      expect(await nextGeneration(store)).toBeGreaterThan(floor + 1);
    },
  },
  {
    name: "a generation so high that it cannot be counted on from leaves the counter alone",
    async run(stage) {
      const { store, expect } = stage;
      await stage.join("a");
      const before = await nextGeneration(store);
      for (const [count, floor] of [1e16, Number.MAX_SAFE_INTEGER, Number.NaN].entries())
        expect((await stage.beat("a", 2 + count, { generationFloor: floor })).kind).toBe("ok");
      // The store's clock moves the counter on as well, by less than a minute here.
      expect(await nextGeneration(store)).toBeGreaterThan(before);
      expect(await nextGeneration(store)).toBeLessThanOrEqual(later(before, 60_000));
    },
  },
  {
    name: "endDeadSession ends a session and its holds, parked since it was last heard of",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      await stage.join("b");
      const held = await stage.ready(a, "t", 1);
      const heard = (await store.sessions()).find(({ instance }) => instance === a)?.lastBeatAt;
      expect(await store.endDeadSession(a, 1)).toBe(true);
      expect((await store.sessions()).map(({ instance }) => instance)).toEqual(["b"]);
      expect(await stage.now(held.sandboxId)).toEqual({
        ...held,
        holders: {},
        // Whether it was used is no longer known.
        arrival: null,
        parkedAt: heard,
        revision: held.revision + 1,
      });
    },
  },
  {
    name: "endDeadSession looks at the beat again",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const held = await stage.ready(a, "t", 1);
      const { sandboxId, generation } = held;
      await stage.beat("a", 2, { held: [{ sandboxId, generation }], asOf: 9 });
      expect(await store.endDeadSession(a, 1)).toBe(false);
      expect(await store.endDeadSession(a, 3)).toBe(false);
      expect((await store.sessions()).length).toBe(1);
      expect(await stage.now(sandboxId)).toEqual(held);
      expect(await store.endDeadSession(a, 2)).toBe(true);
      expect(await store.endDeadSession(a, 2)).toBe(false);
    },
  },
  {
    name: "endDeadSession of one holder leaves the others",
    async run(stage) {
      const a = await stage.join("a");
      const b = await stage.join("b");
      const record = await stage.hold(await stage.ready(a, "t", 1), b, 1);
      await stage.endDeadSession(a);
      const now = await stage.now(record.sandboxId);
      stage.expect(Object.keys(now.holders)).toEqual(["b"]);
    },
  },
  {
    name: "a sandbox whose last holder was dead is parked since a later one left",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const { sandboxId, generation, ...record } = await stage.ready(a, "t", 1);
      const heard = (await store.sessions()).find(({ instance }) => instance === a)?.lastBeatAt ?? Number.NaN;
      // Until the store's clock has gone on by a millisecond.
      let left: number | null = null;
      for (let seq = 1; (left ?? 0) <= heard && seq < 200_000; seq++) {
        await stage.hold({ ...record, sandboxId, generation }, b, seq);
        left = (await store.unhold({ sandboxId, generation, instance: b, seq, used: true }))?.parkedAt ?? null;
      }
      await stage.endDeadSession(a);
      const now = await stage.now(sandboxId);
      expect(now.holders).toEqual({});
      expect(now.parkedAt).toBe(left);
      expect(now.parkedAt).toBeGreaterThan(heard);
    },
  },
  {
    name: "who was buried writes nothing until it has registered again",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const creating = await stage.creating(a, "creating");
      const parked = await stage.ready(a, "parked");
      const blank = await stage.ready(a, null);
      await stage.endDeadSession(a);
      const before = await store.list();

      const gone = { kind: "unknown-session" };
      const { token, generation, sandboxId, revision } = blank;
      expect(await stage.beat("a", 2)).toEqual(gone);
      expect(await stage.tryReserve(a, "new")).toEqual(gone);
      expect(await store.hold(holdOf(parked, a, 9))).toEqual(gone);
      expect(await store.take(takeOf("parked", a, 9))).toEqual(gone);
      expect(await store.take(takeOf("nobody", a, 9))).toEqual(gone);
      expect(await store.stop(stopOf(parked, a))).toEqual(gone);
      const bind = { sandboxId, revision, token, generation: later(generation), instance: a, seq: 9, maxPerUser: null };
      expect(await store.bind({ ...bind, user: "u" as never, thread: "t" as never })).toEqual(gone);
      expect(await store.restore({ record: parked, instance: a, seq: 9 })).toEqual(gone);
      const publish = { sandboxId: creating.sandboxId, revision: creating.revision, actor: a, ref: "r" as never };
      expect(await store.publish({ ...publish, place: "home", arrival: "empty", hold: 1 })).toBe(null);
      expect(await store.takeOver({ sandboxId: creating.sandboxId, revision: creating.revision, actor: a })).toBe(null);
      const orphan = { ...stage.newRecord(), ref: null, place: "home", key: null, generation } as const;
      expect(await store.claimForRemoval({ ...orphan, actor: a })).toBe(null);
      expect(await store.list()).toEqual(before);

      expect((await stage.beat("a", 3, { register: true })).kind).toBe("ok");
      expect((await store.hold(holdOf(parked, a, 10))).kind).toBe("held");
      expect((await store.take(takeOf("parked", a, 11))).kind).toBe("held");
    },
  },
  {
    name: "leave ends one's own session and holds, and doing it twice is fine",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const held = await stage.ready(a, "t", 1);
      await store.leave(a);
      await store.leave(a);
      expect(await store.sessions()).toEqual([]);
      const now = await stage.now(held.sandboxId);
      expect(now).toEqual(expect.objectContaining({ holders: {}, state: "ready" }));
      expect(now.parkedAt ?? 0).toBeGreaterThan(0);
    },
  },
];
