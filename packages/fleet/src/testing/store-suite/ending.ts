/** → stopping → absent, and taking over from dead instances (rules 1, 3, 10, 11). */

import type { EngineRef } from "@sandlot/contract";
import { anonymousThread, type SandboxRecord } from "../../store/record.ts";
import { later, type StoreCase, stopOf, UNKNOWN_SANDBOX, USER } from "./stage.ts";

export const endingCases: readonly StoreCase[] = [
  {
    name: "stop of what nobody holds: stopping, with its actor, reason and purge",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      for (const thread of ["t", null]) {
        const parked = await stage.ready(a, thread);
        const record = await stage.stop(parked, a, { reason: "idle", purge: true });
        expect(record).toEqual({
          ...parked,
          ...{
            state: "stopping",
            actor: a,
            reason: "idle",
            purge: true,
            parkedAt: null,
            revision: parked.revision + 1,
          },
        });
        expect(await store.get(parked.sandboxId)).toEqual(record);
      }
    },
  },
  {
    name: "stop is refused inside the transaction while somebody holds it",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const held = await stage.ready(a, "t", 1);
      expect(await store.stop(stopOf(held, b))).toEqual({ kind: "held", record: held });
      // Also when the plan is older than the hold.
      const parked = await stage.ready(a, "t2");
      const again = await stage.hold(parked, a, 1);
      expect(await store.stop(stopOf(parked, b))).toEqual({ kind: "held", record: again });
    },
  },
  {
    name: "stop is refused while a remote caller has a lease",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const parked = await stage.ready(a, "t");
      await stage.lease(parked, "lease");
      const leased = await stage.now(parked.sandboxId);
      expect(await store.stop(stopOf(leased, a))).toEqual({ kind: "held", record: leased });
    },
  },
  {
    name: "dead and force end what is held, and the holds",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      for (const kind of ["dead", "force"] as const) {
        const held = await stage.ready(a, `t-${kind}`, 1);
        const lease = await stage.lease(held, `lease-${kind}`);
        const record = await stage.stop(held, b, { mode: { kind } });
        expect(record).toEqual(
          expect.objectContaining({ state: "stopping", actor: b, holders: {}, leases: {}, parkedAt: null }),
        );
        expect(await store.findLease(lease)).toBe(null);
        expect(await store.renewLease(lease)).toBe(null);
      }
    },
  },
  {
    name: "cancel is noted by what is creating: it cannot be published, and ends for that reason with that purge",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const creating = await stage.creating(a, "t");
      const cancel = (purge: boolean) => stopOf(creating, b, { reason: "destroyed", purge, mode: { kind: "cancel" } });
      const noted = await stage.now(creating.sandboxId);
      expect(await store.stop(cancel(false))).toEqual({
        kind: "noted",
        record: { ...noted, reason: "destroyed", revision: noted.revision + 1 },
      });
      // A repeated request changes nothing; a purge is added.
      const once = await stage.now(creating.sandboxId);
      expect(await store.stop(cancel(false))).toEqual({ kind: "noted", record: once });
      await store.stop(cancel(true));
      const { sandboxId, revision } = creating;
      const ready = { sandboxId, revision, actor: a, ref: "ref" as EngineRef, place: "home" as const, arrival: null };
      expect(await store.publish({ ...ready, hold: 1 })).toBe(null);
      const ended = await stage.stop(await stage.now(sandboxId), a, {
        reason: "create-failed",
        mode: { kind: "abandon" },
      });
      expect(ended).toMatchObject({ state: "stopping", actor: a, reason: "destroyed", purge: true });
    },
  },
  {
    name: "cancel is noted for whoever takes over, and is lost on everything but what is creating",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const mode = { kind: "cancel" } as const;
      const creating = await stage.creating(a, "t");
      await store.stop(stopOf(creating, b, { reason: "destroyed", purge: true, mode }));
      const { revision } = await stage.now(creating.sandboxId);
      await store.leave(a);
      const taken = await store.takeOver({ sandboxId: creating.sandboxId, revision, actor: b });
      expect(taken).toMatchObject({ state: "stopping", actor: b, reason: "destroyed", purge: true });
      const ready = await stage.ready(b, "t2");
      expect(await store.stop(stopOf(ready, b, { mode }))).toEqual({ kind: "lost", record: ready });
    },
  },
  {
    name: "stop of another generation, of nothing, or of what is creating is lost",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const held = await stage.ready(a, "t", 1);
      const creating = await stage.creating(a, "t2");
      for (const mode of [
        { kind: "dead" },
        { kind: "force" },
        { kind: "unheld", revision: held.revision, createdAt: held.createdAt },
      ] as const) {
        const other = stopOf(held, a, { mode, generation: later(held.generation) });
        expect(await store.stop(other)).toEqual({ kind: "lost", record: held });
        expect(await store.stop({ ...other, sandboxId: UNKNOWN_SANDBOX })).toEqual({ kind: "lost", record: null });
        expect(await store.stop(stopOf(creating, a, { mode }))).toEqual({ kind: "lost", record: creating });
      }
    },
  },
  {
    name: "abandon is for the actor of what is creating, and for nobody else",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const creating = await stage.creating(a, "t");
      const mode = { kind: "abandon" } as const;
      expect(await store.stop(stopOf(creating, b, { mode }))).toEqual({ kind: "lost", record: creating });
      const record = await stage.stop(creating, a, { mode, reason: "create-abandoned" });
      expect(record).toMatchObject({ state: "stopping", actor: a, reason: "create-abandoned" });
      const ready = await stage.ready(a, "t2", 1);
      expect(await store.stop(stopOf(ready, a, { mode }))).toEqual({ kind: "lost", record: ready });
    },
  },
  {
    name: "stop of what is stopping is lost; asked to purge, it purges, and the remover finds out",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const record = await stage.stopping(a, "t");
      const { sandboxId, revision } = record;
      expect(await store.stop(stopOf(record, b, { mode: { kind: "force" } }))).toEqual({ kind: "lost", record });
      const answer = await store.stop(stopOf(record, b, { mode: { kind: "force" }, purge: true }));
      const purged = { ...record, purge: true, revision: revision + 1 };
      expect(answer).toEqual({ kind: "lost", record: purged });
      expect(await store.remove({ sandboxId, revision, actor: a })).toBe(false);
      expect(await store.stop(stopOf(record, b, { mode: { kind: "force" }, purge: true }))).toEqual({
        kind: "lost",
        record: purged,
      });
      expect(await store.remove({ sandboxId, revision: purged.revision, actor: a })).toBe(true);
    },
  },
  {
    name: "a thread that nobody can ask for again is always purged",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const thread = (n: number) => anonymousThread(`0${n}`);
      expect((await stage.stop(await stage.ready(a, thread(1)), a)).purge).toBe(true);
      const abandoned = await stage.stop(await stage.creating(a, thread(2)), a, { mode: { kind: "abandon" } });
      expect(abandoned.purge).toBe(true);
      const { sandboxId, revision } = await stage.creating(a, thread(3));
      await stage.endDeadSession(a);
      expect(await store.takeOver({ sandboxId, revision, actor: b })).toMatchObject({ state: "stopping", purge: true });
    },
  },
  {
    name: "remove is for the actor with the right revision, and leaves a tombstone",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const record = await stage.stopping(a, "t");
      const { sandboxId, revision, generation, createdAt } = record;
      expect(await store.remove({ sandboxId, revision, actor: b })).toBe(false);
      expect(await store.remove({ sandboxId, revision: revision - 1, actor: a })).toBe(false);
      expect(await store.remove({ sandboxId: UNKNOWN_SANDBOX, revision, actor: a })).toBe(false);
      expect(await store.tombstone(sandboxId)).toBe(null);
      expect(await store.remove({ sandboxId, revision, actor: a })).toBe(true);
      expect(await store.remove({ sandboxId, revision, actor: a })).toBe(false);
      expect(await store.get(sandboxId)).toBe(null);
      const tombstone = stage.some(await store.tombstone(sandboxId));
      const { stoppedAt, ...rest } = tombstone;
      expect(rest).toEqual({ sandboxId, user: USER, thread: "t", generation, reason: "destroyed", by: a, createdAt });
      expect(stoppedAt).toBeGreaterThanOrEqual(createdAt);
      // The thread is free again.
      expect((await stage.tryReserve(b, "t")).kind).toBe("reserved");
    },
  },
  {
    name: "only what is stopping is removed",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      for (const { sandboxId, revision } of [await stage.creating(a, "t1"), await stage.ready(a, "t2")]) {
        expect(await store.remove({ sandboxId, revision, actor: a })).toBe(false);
      }
      expect((await store.list()).length).toBe(2);
    },
  },
  {
    name: "take-over is only from who is gone, and only by who is there",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const creating = await stage.creating(a, "creating");
      const stopping = await stage.stopping(a, "stopping");
      const parked = await stage.ready(a, "parked");
      const ask = ({ sandboxId, revision }: SandboxRecord, actor = b) => store.takeOver({ sandboxId, revision, actor });
      expect(await ask(creating)).toBe(null);
      expect(await ask(stopping)).toBe(null);
      await stage.endDeadSession(a);
      expect(await ask(parked)).toBe(null);
      expect(await ask({ ...creating, revision: creating.revision + 1 })).toBe(null);
      expect(await ask(creating, "nobody" as typeof b)).toBe(null);
      expect(await ask({ ...creating, sandboxId: UNKNOWN_SANDBOX })).toBe(null);
      const taken = { state: "stopping", actor: b, revision: creating.revision + 1, reason: "create-abandoned" };
      expect(await ask(creating)).toEqual({ ...creating, ...taken });
      expect(await ask(stopping)).toEqual({ ...stopping, actor: b, revision: stopping.revision + 1 });
      // The former actor can no longer remove the record; the new actor can.
      const { sandboxId, revision } = stopping;
      expect(await store.remove({ sandboxId, revision, actor: a })).toBe(false);
      expect(await store.remove({ sandboxId, revision: revision + 1, actor: b })).toBe(true);
    },
  },
  {
    name: "an actor that takes its own stop again gets no removal that it sent before, and makes no other stop its own",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const stopping = await stage.stopping(a, "stopping");
      const { sandboxId, revision } = stopping;
      expect(await store.takeOver({ sandboxId, revision, actor: a })).toEqual({ ...stopping, revision: revision + 1 });
      expect(await store.remove({ sandboxId, revision, actor: a })).toBe(false);
      expect(await store.takeOver({ sandboxId, revision, actor: a })).toBe(null);
      expect(await store.remove({ sandboxId, revision: revision + 1, actor: a })).toBe(true);
      const creating = await stage.creating(a, "creating");
      const own = { sandboxId: creating.sandboxId, revision: creating.revision, actor: a };
      expect(await store.takeOver(own)).toBe(null);
    },
  },
  {
    name: "tombstones are kept for the newest thousand",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const all = [];
      for (let n = 0; n < 1_002; n += 1) {
        const creating = await stage.creating(a, null);
        const { sandboxId, revision } = await stage.stop(creating, a, { mode: { kind: "abandon" } });
        await store.remove({ sandboxId, revision, actor: a });
        all.push(sandboxId);
      }
      // One after the other: a thousand steps at once would have to end within the deadline of each.
      const kept: boolean[] = [];
      for (const sandboxId of all) kept.push((await store.tombstone(sandboxId)) !== null);
      expect(kept.indexOf(true)).toBe(2);
      expect(kept.lastIndexOf(false)).toBe(1);
    },
  },
];
