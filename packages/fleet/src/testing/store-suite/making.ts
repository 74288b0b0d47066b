/** absent → creating → ready: intent, limits, generations (rules 1, 2, 4). */

import type { EngineRef, UserId } from "@sandlot/contract";
import { NO_LIMITS, nextGeneration, type StoreCase, USER } from "./stage.ts";

const PUBLISH = { ref: "ref" as EngineRef, place: "home", arrival: "empty", hold: null } as const;

export const makingCases: readonly StoreCase[] = [
  {
    name: "reserve claims the thread and writes the intent, before anything is made",
    async run(stage) {
      const a = await stage.join("a");
      const request = stage.newRecord();
      const record = await stage.creating(a, "t", request);
      const { createdAt, generation, ...rest } = record;
      stage.expect(rest).toEqual({
        ...request,
        ...{ user: USER, thread: "t", revision: 1, state: "creating", actor: a, ref: null, holders: {}, leases: {} },
        ...{ place: "home", arrival: null, boundFrom: null, parkedAt: null, purge: false, reason: null },
      });
      stage.expect(await stage.now(record.sandboxId)).toEqual(record);
    },
  },
  {
    name: "a thread has one sandbox: the second reserve is answered with the first",
    async run(stage) {
      const a = await stage.join("a");
      const b = await stage.join("b");
      const record = await stage.creating(a, "t");
      stage.expect(await stage.tryReserve(b, "t")).toEqual({ kind: "exists", record });
      const ready = await stage.ready(a, "t2", 1);
      stage.expect(await stage.tryReserve(b, "t2")).toEqual({ kind: "exists", record: ready });
      const stopping = await stage.stopping(a, "t3");
      stage.expect(await stage.tryReserve(b, "t3")).toEqual({ kind: "exists", record: stopping });
      const other = await stage.tryReserve(b, null, { key: { user: "other" as UserId, thread: "t" as never } });
      stage.expect(other.kind).toBe("reserved");
    },
  },
  {
    name: "blanks have no thread, so there may be many",
    async run(stage) {
      const a = await stage.join("a");
      for (let n = 0; n < 3; n += 1) stage.expect((await stage.creating(a, null)).user).toBe(null);
      stage.expect((await stage.store.list()).length).toBe(3);
    },
  },
  {
    name: "generations start at the present time and strictly grow, whoever asks",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const second = await stage.second();
      const clock = (await store.sessions())[0]?.lastBeatAt ?? Number.POSITIVE_INFINITY;
      const given = [
        await nextGeneration(store),
        (await stage.creating(a, "t1")).generation,
        await nextGeneration(second),
        (await stage.creating(a, null)).generation,
      ];
      expect([...given].sort((x, y) => x - y)).toEqual(given);
      expect(new Set(given).size).toBe(given.length);
      // The store is a few moments older than the session that serves as its clock here.
      expect(given[0] ?? 0).toBeGreaterThan(clock - 60_000);
    },
  },
  {
    name: "everything counts against the limit: creating, held, parked, blank, and stopping until it is confirmed",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      await stage.creating(a, "creating");
      await stage.ready(a, "held", 1);
      await stage.ready(a, "parked");
      await stage.ready(a, null);
      const { sandboxId, revision } = await stage.stopping(a, "stopping");
      const limits = { max: 5, maxPerUser: null, maxPerEngine: null };
      const counts = { leased: 1, parked: 1, blank: 1, creating: 1, stopping: 1 };
      expect(await stage.tryReserve(a, "one more", { limits })).toEqual({
        kind: "full",
        scope: "fleet",
        max: 5,
        counts,
      });
      expect(await stage.tryReserve(a, null, { limits })).toMatchObject({ kind: "full" });
      expect((await store.list()).length).toBe(5);
      expect(await store.remove({ sandboxId, revision, actor: a })).toBe(true);
      expect((await stage.tryReserve(a, "one more", { limits })).kind).toBe("reserved");
    },
  },
  {
    name: "a user's limit counts that user's sandboxes only",
    async run(stage) {
      const { expect } = stage;
      const a = await stage.join("a");
      await stage.creating(a, "t1");
      await stage.stopping(a, "t2");
      await stage.ready(a, null);
      const limits = { max: null, maxPerUser: 2, maxPerEngine: null };
      const counts = { leased: 0, parked: 0, blank: 0, creating: 1, stopping: 1 };
      expect(await stage.tryReserve(a, "t3", { limits })).toEqual({ kind: "full", scope: "user", max: 2, counts });
      const key = { user: "other" as UserId, thread: "t" as never };
      expect((await stage.tryReserve(a, null, { key, limits })).kind).toBe("reserved");
      expect((await stage.tryReserve(a, null, { limits })).kind).toBe("reserved");
    },
  },
  {
    name: "an existing sandbox is found also when there is no room",
    async run(stage) {
      const a = await stage.join("a");
      const record = await stage.creating(a, "t");
      const limits = { max: 0, maxPerUser: 0, maxPerEngine: null };
      stage.expect(await stage.tryReserve(a, "t", { limits })).toEqual({ kind: "exists", record });
    },
  },
  {
    name: "publish makes it ready, held by its maker or parked",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      for (const hold of [7, null]) {
        const creating = await stage.creating(a, `t${hold}`);
        const { sandboxId, revision, generation } = creating;
        const ref = "ref" as EngineRef;
        const arrival = hold === null ? null : "restored";
        const request = { sandboxId, revision, actor: a, ref, place: "slot:1", arrival, hold } as const;
        const record = stage.some(await store.publish(request));
        expect(record).toMatchObject({
          state: "ready",
          actor: null,
          ref,
          place: "slot:1",
          arrival,
          revision: revision + 1,
          generation,
        });
        if (hold === null) expect(record.parkedAt ?? 0).toBeGreaterThan(0);
        else expect(record).toMatchObject({ parkedAt: null, holders: { a: { generation, seq: 7 } } });
        expect(await stage.now(sandboxId)).toEqual(record);
      }
    },
  },
  {
    name: "publish is refused to who is no longer the actor, or saw another revision",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const { sandboxId, revision } = await stage.creating(a, "t");
      const request = { ...PUBLISH, sandboxId, revision, actor: a };
      expect(await store.publish({ ...request, actor: b })).toBe(null);
      expect(await store.publish({ ...request, revision: revision + 1 })).toBe(null);
      expect(await store.publish({ ...request, sandboxId: "unknown" as never })).toBe(null);
      await stage.endDeadSession(a);
      expect((await store.takeOver({ sandboxId, revision, actor: b }))?.state).toBe("stopping");
      await stage.beat("a", 2, { register: true });
      expect(await store.publish(request)).toBe(null);
      expect((await stage.now(sandboxId)).state).toBe("stopping");
    },
  },
  {
    name: "publish twice: the second is refused",
    async run(stage) {
      const a = await stage.join("a");
      const record = await stage.ready(a, "t", 1);
      const { sandboxId } = record;
      for (const revision of [record.revision - 1, record.revision]) {
        const request = { ...PUBLISH, sandboxId, revision, actor: a };
        stage.expect(await stage.store.publish(request)).toBe(null);
      }
      stage.expect(await stage.now(sandboxId)).toEqual(record);
    },
  },
  {
    name: "a limit of nothing admits nothing, no limit admits",
    async run(stage) {
      const a = await stage.join("a");
      stage
        .expect(await stage.tryReserve(a, "t", { limits: { max: 0, maxPerUser: null, maxPerEngine: null } }))
        .toMatchObject({ kind: "full", scope: "fleet" });
      stage
        .expect(await stage.tryReserve(a, "t", { limits: { max: null, maxPerUser: 0, maxPerEngine: null } }))
        .toMatchObject({ kind: "full", scope: "user" });
      // Both are full: the answer names the user's limit, because room made there is room for the fleet too.
      stage
        .expect(await stage.tryReserve(a, "t", { limits: { max: 0, maxPerUser: 0, maxPerEngine: null } }))
        .toMatchObject({ kind: "full", scope: "user" });
      stage
        .expect(await stage.tryReserve(a, null, { limits: { max: 0, maxPerUser: 0, maxPerEngine: null } }))
        .toMatchObject({ kind: "full", scope: "fleet" });
      stage.expect((await stage.tryReserve(a, "t", { limits: NO_LIMITS })).kind).toBe("reserved");
    },
  },
];
