/** Remote leases count as holders until they end (rule 8). */

import type { LeaseId } from "@sandlot/contract";
import { later, type StoreCase, UNKNOWN_SANDBOX, unholdOf } from "./stage.ts";

export const remoteLeaseCases: readonly StoreCase[] = [
  {
    name: "a granted lease is found at any connection, and holds the sandbox",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const parked = await stage.ready(a, "t");
      const leaseId = await stage.lease(parked, "lease", 1_234);
      const record = await stage.now(parked.sandboxId);
      expect(record).toMatchObject({ revision: parked.revision + 1, parkedAt: null });
      const { generation } = parked;
      expect(record.leases[leaseId]).toMatchObject({
        generation,
        purpose: "test",
        holder: "a caller",
        ttlMs: 1_234,
        beat: 1,
      });
      expect(await (await stage.second()).findLease(leaseId)).toEqual({ leaseId, beat: 1, ttlMs: 1_234, record });
      expect(await store.list({ parked: true })).toEqual([]);
    },
  },
  {
    name: "no lease on what is not ready in this generation",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const request = { leaseId: "l" as LeaseId, purpose: "p", holder: "h", ttlMs: 1 };
      const ready = await stage.ready(a, "ready");
      for (const record of [await stage.creating(a, "creating"), await stage.stopping(a, "stopping")]) {
        const { sandboxId, generation } = record;
        expect(await store.grantLease({ ...request, sandboxId, generation })).toBe(false);
      }
      const { sandboxId, generation } = ready;
      expect(await store.grantLease({ ...request, sandboxId, generation: later(generation) })).toBe(false);
      expect(await store.grantLease({ ...request, sandboxId: UNKNOWN_SANDBOX, generation })).toBe(false);
      expect(await store.findLease(request.leaseId)).toBe(null);
      expect(await stage.now(sandboxId)).toEqual(ready);
    },
  },
  {
    name: "renewing raises the beat and the revision",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const leaseId = await stage.lease(await stage.ready(a, "t"), "lease");
      const before = stage.some(await store.findLease(leaseId));
      const renewed = stage.some(await store.renewLease(leaseId));
      expect(renewed).toMatchObject({ leaseId, beat: 2, record: { revision: before.record.revision + 1 } });
      expect(await store.findLease(leaseId)).toEqual(renewed);
      expect(await store.renewLease("unknown" as LeaseId)).toBe(null);
    },
  },
  {
    name: "the last to leave parks, be it a lease or a hold",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const held = await stage.ready(a, "t", 1);
      const one = await stage.lease(held, "one");
      const two = await stage.lease(held, "two");
      const still = stage.some(await store.releaseLease(one));
      expect(Object.keys(still.leases)).toEqual([two]);
      expect(Object.keys(still.holders)).toEqual([a]);
      expect((await store.unhold(unholdOf(held, a, 1)))?.holders).toEqual({});
      const last = stage.some(await store.releaseLease(two));
      expect(last).toEqual(expect.objectContaining({ holders: {}, leases: {} }));
      expect(last.parkedAt ?? 0).toBeGreaterThan(0);
      expect(await store.releaseLease(two)).toBe(null);
      expect(await store.renewLease(one)).toBe(null);
    },
  },
  {
    name: "a lease expires only if it is still as it was judged",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const parked = await stage.ready(a, "t");
      const leaseId = await stage.lease(parked, "lease");
      await store.renewLease(leaseId);
      const { generation } = parked;
      expect(await store.expireLease(leaseId, { generation, beat: 1 })).toBe(false);
      expect((await store.findLease(leaseId))?.beat).toBe(2);
      // The same lease on a later generation repeats the same beats.
      expect(await store.expireLease(leaseId, { generation: (generation - 1) as typeof generation, beat: 2 })).toBe(
        false,
      );
      expect(await store.expireLease(leaseId, { generation, beat: 2 })).toBe(true);
      expect(await store.expireLease(leaseId, { generation, beat: 2 })).toBe(false);
      expect(await store.findLease(leaseId)).toBe(null);
      const now = await stage.now(parked.sandboxId);
      expect(now.leases).toEqual({});
      expect(now.parkedAt ?? 0).toBeGreaterThan(0);
    },
  },
  {
    name: "a lease outlives the instance that granted it",
    async run(stage) {
      const a = await stage.join("a");
      const held = await stage.ready(a, "t", 1);
      const leaseId = await stage.lease(held, "lease");
      await stage.endDeadSession(a);
      const now = await stage.now(held.sandboxId);
      stage.expect(Object.keys(now.leases)).toEqual([leaseId]);
      stage.expect((await stage.store.renewLease(leaseId))?.beat).toBe(2);
    },
  },
  {
    name: "a lease that is granted again is the same lease, and changes nothing",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const parked = await stage.ready(a, "t");
      const leaseId = await stage.lease(parked, "lease", 1_000);
      await store.renewLease(leaseId);
      const before = stage.some(await store.findLease(leaseId));
      await stage.lease(parked, "lease", 9_000);
      expect(await store.findLease(leaseId)).toEqual(before);
      expect(await stage.now(parked.sandboxId)).toEqual(before.record);
    },
  },
  {
    name: "a lease is on one sandbox; another gets the same id only when it has ended",
    async run(stage) {
      const { store, expect } = stage;
      const a = await stage.join("a");
      const one = await stage.ready(a, "one");
      const two = await stage.ready(a, "two");
      const leaseId = await stage.lease(one, "lease");
      const { sandboxId, generation } = two;
      const request = { leaseId, sandboxId, generation, purpose: "p", holder: "h", ttlMs: 1 };
      expect(await store.grantLease(request)).toBe(false);
      expect(await stage.now(sandboxId)).toEqual(two);
      expect((await store.findLease(leaseId))?.record.sandboxId).toBe(one.sandboxId);
      await store.releaseLease(leaseId);
      expect(await store.grantLease(request)).toBe(true);
      expect((await store.findLease(leaseId))?.record.sandboxId).toBe(sandboxId);
      await stage.stop(await stage.now(sandboxId), a, { mode: { kind: "force" } });
      await stage.lease(one, "lease");
      expect((await store.findLease(leaseId))?.record.sandboxId).toBe(one.sandboxId);
    },
  },
];
