/** A store that begins, or begins again: what it refuses, restores, adopts and claims for removal (rules 4 and 12). */

import type { EngineRef, Epoch, Generation, ThreadId, UserId } from "@sandlot/contract";
import { anonymousThread } from "../../store/record.ts";
import type { AdoptRequest, ClaimForRemovalRequest } from "../../store/store.ts";
import { bindOf } from "./binding.ts";
import {
  ENGINE,
  holdOf,
  later,
  NO_LIMITS,
  nextGeneration,
  type Stage,
  type StoreCase,
  stopOf,
  takeOf,
  USER,
} from "./stage.ts";

export const recoveryCases: readonly StoreCase[] = [
  {
    name: "while it recovers, nothing new is made or taken, and nothing ends for being unheld; releases and renewals go on",
    begins: "recovering",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const { epoch } = await store.meta(ENGINE);
      const shut = { kind: "recovering", epoch };
      expect(await store.adopt(await adoptOf(stage, "t"))).toBe(true);
      const parked = stage.some(await store.find(USER, "t" as ThreadId));
      expect(await stage.tryReserve(a, "t2")).toEqual(shut);
      expect(await stage.tryReserve(a, null)).toEqual(shut);
      expect(await store.hold(holdOf(parked, a, 1))).toEqual(shut);
      expect(await store.take(takeOf("t", a, 1))).toEqual(shut);
      expect(await store.take(takeOf("nobody", a, 1))).toEqual(shut);
      expect(await stage.now(parked.sandboxId)).toEqual(parked);
      expect(await store.bind(await bindOf(stage, parked, a, "t2"))).toEqual(shut);
      const leaseId = await stage.lease(parked, "lease");
      expect((await store.renewLease(leaseId))?.beat).toBe(2);
      const released = stage.some(await store.releaseLease(leaseId));
      // Its holders may not have re-registered yet; only `force` or `dead` ends it.
      expect((await store.stop(stopOf(released, a))).kind).toBe("lost");
      expect((await store.stop({ ...stopOf(released, a), mode: { kind: "force" } })).kind).toBe("stopping");
    },
  },
  {
    name: "who has put a sandbox back takes it again while it recovers, when its session has ended since",
    begins: "recovering",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      expect(await store.adopt(await adoptOf(stage, "t"))).toBe(true);
      const { sandboxId } = stage.some(await store.find(USER, "t" as ThreadId));
      const parked = await stage.readyNow(sandboxId);
      expect((await store.restore({ record: parked, instance: a, seq: 1 })).kind).toBe("held");
      await stage.endDeadSession(a);
      const { generation } = parked;
      const hold = { kind: "hold", sandboxId, generation, seq: 2 } as const;
      const { epoch } = await store.meta(ENGINE);
      expect(await store.rejoin({ instance: a, epoch, holds: [hold] })).toEqual([{ kind: "unknown-session" }]);
      expect((await stage.beat("a", 3, { register: true })).kind).toBe("ok");
      const other = { ...hold, generation: later(generation) };
      const late = { instance: a, epoch: "another-life" as Epoch, holds: [hold] };
      expect(await store.rejoin(late)).toEqual([{ kind: "unknown-session" }]);
      expect((await stage.now(sandboxId)).holders).toEqual({});
      const answers = await store.rejoin({ instance: a, epoch, holds: [hold, other] });
      expect(answers.map(({ kind }) => kind)).toEqual(["held", "gone"]);
      expect(Object.keys((await stage.now(sandboxId)).holders)).toEqual(["a"]);
    },
  },
  {
    name: "recovery ends for its own epoch only",
    begins: "recovering",
    async run(stage) {
      const { store, expect } = stage;
      const { epoch } = await store.meta(ENGINE);
      await store.endRecovery("another-life" as Epoch, ENGINE);
      expect(await store.meta(ENGINE)).toEqual({ epoch, recovering: true });
      await store.endRecovery(epoch, ENGINE);
      await store.endRecovery(epoch, ENGINE);
      expect(await store.meta(ENGINE)).toEqual({ epoch, recovering: false });
    },
  },
  {
    name: "a store that was lost has a new epoch, recovers, knows nothing, and never repeats a generation",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const { epoch: old } = await store.meta(ENGINE);
      const held = await stage.ready(a, "t", 1);
      await stage.empty();
      const answer = await stage.beat("a", 2, { epoch: old });
      const meta = await store.meta(ENGINE);
      expect(answer).toEqual({ kind: "new-epoch", epoch: meta.epoch });
      expect(meta.recovering).toBe(true);
      expect(meta.epoch === old).toBe(false);
      expect(await store.list()).toEqual([]);
      expect((await stage.beat("a", 3, { epoch: meta.epoch })).kind).toBe("unknown-session");
      const { sandboxId, generation } = held;
      const again = {
        epoch: meta.epoch,
        register: true,
        held: [{ sandboxId, generation }],
        generationFloor: generation,
      };
      const lost = [{ sandboxId, generation, reason: "session-lost" }];
      expect(await stage.beat("a", 4, again)).toMatchObject({ kind: "ok", epoch: meta.epoch, recovering: true, lost });
      expect(await nextGeneration(store)).toBeGreaterThan(generation);
    },
  },
  {
    name: "a holder puts back what it holds, with the leases on it",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const both = await stage.hold(await stage.ready(a, "t", 1), b, 1);
      const leaseId = await stage.lease(both, "lease");
      const remembered = await stage.readyNow(both.sandboxId);
      await stage.empty();
      for (const name of ["a", "b"]) await stage.beat(name, 2, { register: true });

      const first = await store.restore({ record: remembered, instance: a, seq: 5 });
      expect(first.kind).toBe("held");
      const restored = await stage.now(both.sandboxId);
      const { holders, revision, leases, ...rest } = restored;
      const { holders: _, revision: __, leases: before, ...same } = remembered;
      expect(rest).toEqual(same);
      // Renewals may have been lost: the beat must be new to every observer.
      const { beat } = stage.some(await store.findLease(leaseId));
      expect(beat).toBeGreaterThan((before[leaseId]?.beat ?? 0) + 100);
      expect(leases).toEqual({ [leaseId]: { ...before[leaseId], beat } });
      expect(await store.expireLease(leaseId, stage.some(before[leaseId] ?? null))).toBe(false);
      expect(revision).toBeGreaterThan(remembered.revision);
      expect(holders).toMatchObject({ a: { generation: both.generation, seq: 5 } });
      expect(Object.keys(holders)).toEqual(["a"]);
      expect((await store.findLease(leaseId))?.record.sandboxId).toBe(both.sandboxId);

      const second = await store.restore({ record: remembered, instance: b, seq: 6 });
      expect(second.kind === "held" && Object.keys(second.record.holders).sort()).toEqual(["a", "b"]);
      expect(await nextGeneration(store)).toBeGreaterThan(both.generation);
    },
  },
  {
    name: "what was parked in between is restored as held, and what was stopping is not",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const parked = await stage.ready(a, "t");
      await stage.empty();
      await stage.beat("a", 2, { register: true });
      const answer = await store.restore({ record: parked, instance: a, seq: 1 });
      expect(answer).toMatchObject({ kind: "held", record: { state: "ready", parkedAt: null } });
      const stopping = await stage.stop(await stage.now(parked.sandboxId), a, { mode: { kind: "force" } });
      expect(await store.restore({ record: parked, instance: a, seq: 2 })).toEqual({ kind: "gone", record: stopping });
    },
  },
  {
    name: "restore yields to a record of another generation, and to another sandbox of the thread",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const now = await stage.ready(a, "t", 1);
      const older = { ...now, generation: later(now.generation, -1) };
      expect(await store.restore({ record: older, instance: a, seq: 9 })).toEqual({ kind: "gone", record: now });
      const other = { ...now, sandboxId: "another" as typeof now.sandboxId };
      expect(await store.restore({ record: other, instance: a, seq: 9 })).toEqual({ kind: "gone", record: now });
      expect(await stage.now(now.sandboxId)).toEqual(now);
    },
  },
  {
    name: "what has a tombstone is neither restored nor adopted, only condemned",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const held = await stage.ready(a, "t", 1);
      const { sandboxId } = held;
      const { revision } = await stage.stop(held, a, { mode: { kind: "dead" }, reason: "crashed" });
      expect(await store.remove({ sandboxId, revision, actor: a })).toBe(true);
      expect(await store.restore({ record: held, instance: a, seq: 9 })).toEqual({ kind: "gone", record: null });
      expect(await store.adopt(await adoptOf(stage, "t", { sandboxId }))).toBe(false);
      expect(await store.adopt(await adoptOf(stage, "t2", { sandboxId }))).toBe(false);
      expect(await store.list()).toEqual([]);
      // The thread is free for a later generation, and an object that landed under the old id can still be ended.
      expect(await store.adopt(await adoptOf(stage, "t", { generation: later(held.generation, -1) }))).toBe(false);
      expect(await store.adopt(await adoptOf(stage, "t", { generation: later(held.generation, 1) }))).toBe(true);
      const late = stage.some(await store.claimForRemoval(condemnOf(stage, { actor: a, sandboxId })));
      expect(late).toMatchObject({ sandboxId, state: "stopping", reason: "orphaned" });
      expect(await store.remove({ sandboxId, revision: late.revision, actor: a })).toBe(true);
      // The first reason stays.
      expect((await store.tombstone(sandboxId))?.reason).toBe("crashed");
    },
  },
  {
    name: "adopt takes in, as parked, what a marker proves, and raises the counter",
    begins: "recovering",
    async run(stage) {
      const { store, expect } = stage;
      const generation = later(await nextGeneration(store), 5_000);
      const request = await adoptOf(stage, "t", { generation });
      expect(await store.adopt(request)).toBe(true);
      const record = stage.some(await store.find(USER, "t" as ThreadId));
      const { sandboxId, token, ref, place, backend, blueprint, blueprintHash } = request;
      expect(record).toMatchObject({ sandboxId, token, ref, place, backend, blueprint, blueprintHash, generation });
      const fresh = { state: "ready", actor: null, holders: {}, leases: {}, revision: 1, boundFrom: null };
      expect(record).toEqual(expect.objectContaining(fresh));
      expect(record.parkedAt ?? 0).toBeGreaterThan(0);
      expect(await nextGeneration(store)).toBeGreaterThan(generation);
    },
  },
  {
    name: "a planned stop ends no sandbox that was adopted after the plan, although its revision is the same",
    begins: "recovering",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      await store.adopt(await adoptOf(stage, "t"));
      await stage.endRecovery();
      const record = stage.some(await store.find(USER, "t" as ThreadId));
      const planned = stopOf(record, a);
      const { revision, createdAt } = record;
      const earlier = { kind: "unheld", revision, createdAt: createdAt - 1 } as const;
      expect(await store.stop({ ...planned, mode: earlier })).toEqual({ kind: "lost", record });
      expect((await store.stop(planned)).kind).toBe("stopping");
    },
  },
  {
    name: "adopt yields to what is known, to the limits, and to a new epoch",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const known = await stage.creating(a, "t1");
      expect(await store.adopt(await adoptOf(stage, "t1"))).toBe(false);
      expect(await store.adopt(await adoptOf(stage, "t2", { epoch: "another-life" as Epoch }))).toBe(false);
      expect(await store.adopt(await adoptOf(stage, "t2", { sandboxId: known.sandboxId }))).toBe(false);
      expect(
        await store.adopt(await adoptOf(stage, "t2", { limits: { max: 1, maxPerUser: null, maxPerEngine: null } })),
      ).toBe(false);
      expect(
        await store.adopt(await adoptOf(stage, "t2", { limits: { max: null, maxPerUser: 1, maxPerEngine: null } })),
      ).toBe(false);
      expect(await store.list()).toEqual([known]);
      const user = "other" as UserId;
      expect(
        await store.adopt(await adoptOf(stage, "t2", { user, limits: { max: 2, maxPerUser: 1, maxPerEngine: null } })),
      ).toBe(true);
    },
  },
  {
    name: "claimForRemoval writes a stopping record for what no record knows, once",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const b = await stage.join("b");
      const generation = later(await nextGeneration(store), 5_000);
      const request = condemnOf(stage, { actor: a, generation, ref: "ref" as EngineRef });
      const record = stage.some(await store.claimForRemoval(request));
      expect(record).toMatchObject({
        state: "stopping",
        actor: a,
        reason: "orphaned",
        user: null,
        thread: null,
        generation,
        ref: "ref",
      });
      expect(await stage.now(record.sandboxId)).toEqual(record);
      expect(await store.claimForRemoval({ ...request, actor: b })).toBe(null);
      expect(await store.adopt(await adoptOf(stage, "t", { sandboxId: record.sandboxId }))).toBe(false);
      expect(await nextGeneration(store)).toBeGreaterThan(generation);
      expect(await store.remove({ sandboxId: record.sandboxId, revision: record.revision, actor: a })).toBe(true);
      expect((await store.tombstone(record.sandboxId))?.reason).toBe("orphaned");
    },
  },
  {
    name: "what was condemned without a thread has no workspace, so a purge of it promises nothing",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const record = stage.some(await store.claimForRemoval(condemnOf(stage, { actor: a })));
      const mode = { kind: "force" } as const;
      expect(await store.stop(stopOf(record, a, { mode, purge: true }))).toEqual({ kind: "lost", record });
    },
  },
  {
    name: "claimForRemoval claims the marker's thread if it is free",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const key = { user: USER, thread: "t" as ThreadId };
      const first = stage.some(await store.claimForRemoval(condemnOf(stage, { actor: a, key })));
      expect(first).toMatchObject(key);
      expect(await stage.tryReserve(a, "t")).toEqual({ kind: "exists", record: first });
      const second = stage.some(await store.claimForRemoval(condemnOf(stage, { actor: a, key })));
      expect(second).toMatchObject({ user: null, thread: null, state: "stopping" });
    },
  },
  {
    name: "claimForRemoval is refused in another epoch than the one it was judged in",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const { epoch } = await store.meta(ENGINE);
      const request = condemnOf(stage, { actor: a, epoch: "another-life" as Epoch });
      expect(await store.claimForRemoval(request)).toBe(null);
      expect(await store.list()).toEqual([]);
      expect((await store.claimForRemoval({ ...request, epoch }))?.state).toBe("stopping");
    },
  },
  {
    name: "claimForRemoval of what was replaced is refused unless a later generation of its thread is there",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const superseded = { user: USER, thread: "t" as ThreadId };
      const request = condemnOf(stage, { actor: a, superseded });
      expect(await store.claimForRemoval(request)).toBe(null);
      const { generation } = await stage.ready(a, "t", 1);
      expect(await store.claimForRemoval({ ...request, generation })).toBe(null);
      expect((await store.claimForRemoval(request))?.state).toBe("stopping");
    },
  },
  {
    name: "claimForRemoval purges a thread that nobody can ask for again",
    async run(stage) {
      const a = await stage.join("a");
      const key = { user: USER, thread: anonymousThread("01") };
      const record = stage.some(await stage.store.claimForRemoval(condemnOf(stage, { actor: a, key })));
      stage.expect(record).toMatchObject({ ...key, purge: true, reason: "orphaned" });
    },
  },
  {
    name: "claimForRemoval with purge waits for the end of recovery: only then it is known whose the thread is",
    begins: "recovering",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const key = { user: USER, thread: "t" as ThreadId };
      const request = condemnOf(stage, { actor: a, key, purge: true });
      expect(await store.claimForRemoval(request)).toBe(null);
      expect((await store.claimForRemoval(condemnOf(stage, { actor: a })))?.purge).toBe(false);
      await stage.endRecovery();
      expect((await store.claimForRemoval(request))?.purge).toBe(true);
    },
  },
  {
    name: "claimForRemoval with purge is refused under a generation that the thread has left behind",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const key = { user: USER, thread: "t" as ThreadId };
      const early = condemnOf(stage, { actor: a, key, purge: true, generation: await nextGeneration(store) });
      const held = await stage.ready(a, "t", 1);
      const { revision } = await stage.stop(held, a, { mode: { kind: "dead" }, reason: "crashed" });
      expect(await store.remove({ sandboxId: held.sandboxId, revision, actor: a })).toBe(true);
      expect(await store.claimForRemoval(early)).toBe(null);
      const later = stage.some(await store.claimForRemoval({ ...early, generation: null }));
      expect(later.purge).toBe(true);
      expect(later.generation).toBeGreaterThan(held.generation);
    },
  },
  {
    name: "claimForRemoval with purge needs the thread for itself",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const key = { user: USER, thread: "t" as ThreadId };
      await stage.creating(a, "t");
      expect(await store.claimForRemoval(condemnOf(stage, { actor: a, key, purge: true }))).toBe(null);
      expect(await store.claimForRemoval(condemnOf(stage, { actor: a, key: null, purge: true }))).toBe(null);
      const free = { user: USER, thread: "free" as ThreadId };
      const record = stage.some(await store.claimForRemoval(condemnOf(stage, { actor: a, key: free, purge: true })));
      expect(record).toMatchObject({ ...free, state: "stopping", actor: a, purge: true, reason: "destroyed" });
      expect(await stage.now(record.sandboxId)).toEqual(record);
      // The thread cannot be acquired before its workspace is gone, and a second request is refused.
      expect(await stage.tryReserve(a, "free")).toEqual({ kind: "exists", record });
      expect(await store.take(takeOf("free", a, 1))).toEqual({ kind: "other", record });
      expect(await store.claimForRemoval(condemnOf(stage, { actor: a, key: free, purge: true }))).toBe(null);
    },
  },
];

async function adoptOf(stage: Stage, thread: string, more: Partial<AdoptRequest> = {}): Promise<AdoptRequest> {
  const { epoch } = await stage.store.meta(ENGINE);
  const key = { user: USER, thread: thread as ThreadId };
  const found = { generation: 5 as Generation, ref: "ref" as EngineRef, place: "slot:found" } as const;
  return { ...stage.newRecord(), ...key, ...found, limits: NO_LIMITS, epoch, ...more };
}

function condemnOf(
  stage: Stage,
  more: Partial<ClaimForRemovalRequest> & Pick<ClaimForRemovalRequest, "actor">,
): ClaimForRemovalRequest {
  return { ...stage.newRecord(), generation: 5 as Generation, ref: null, place: "home", key: null, ...more };
}
