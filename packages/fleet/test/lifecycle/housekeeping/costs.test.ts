/**
 * The cost of waiting, renewing and silent engines: no census on the hot path, no list per renewal, no waits in
 * sequence.
 */

import type { InstanceId, SandboxId } from "@sandlot/contract";
import { describe, expect, test } from "vitest";
import { Slots } from "../../../src/lifecycle/hold/slots.ts";
import { Peers } from "../../../src/lifecycle/housekeeping/peers.ts";
import { Reconciler } from "../../../src/lifecycle/housekeeping/reconciler.ts";
import { Membership } from "../../../src/lifecycle/session/membership.ts";
import { Retirement } from "../../../src/lifecycle/stop/retirement.ts";
import { EventBus } from "../../../src/observe/event-bus.ts";
import { RowCache } from "../../../src/store/sqlite/row-cache.ts";
import { UnderWay } from "../../../src/world/waiting.ts";
import { recordWith } from "../../support/records.ts";
import { newStage, newStageOn, STORE_KINDS } from "../../support/stage.ts";
import { watched } from "../../support/virtual-time.ts";

describe.each(STORE_KINDS)("over the %s store", (kind) => {
  test("a caller that waits for room does not wake itself", async () => {
    const stage = newStageOn(kind, { limits: { max: 1, queueMax: 4, onFull: "wait" } });
    const { fleet, store } = await stage.open();
    await using _held = await fleet.acquire({ thread: "t1" });
    const waiting = watched(fleet.acquire({ thread: "t2", timeoutMs: 60_000 }));
    await stage.advance(2_000);
    store.forgetCalls();
    await stage.advance(10_000);
    expect(waiting.state).toBe("pending");
    // A poll every quarter of a second, and nothing in between.
    expect(store.callsOf("reserve").length).toBeLessThan(60);
    expect(store.callsOf("take").length).toBeLessThan(60);
    const lists = store.callsOf("list").map(([filter]) => filter);
    expect(lists.length).toBeLessThan(80);
    expect(lists.filter((filter) => filter === undefined).length).toBeLessThan(12);
  });

  test("renewing short remote leases lists nothing", async () => {
    const stage = newStageOn(kind);
    const { fleet, store, backend } = await stage.open();
    const leases = await Promise.all(
      Array.from({ length: 5 }, (_, n) => stage.until(fleet.acquire({ thread: `t${n}`, ttlMs: 9_000 }))),
    );
    await stage.advance(1_000);
    store.forgetCalls();
    for (let second = 0; second < 10; second += 1) {
      for (const { id } of leases) await stage.until(fleet.remoteLeases.renew(id));
      await stage.advance(1_000);
    }
    expect(store.callsOf("renewLease")).toHaveLength(50);
    expect(store.callsOf("list").length).toBeLessThan(20);
    expect(backend.callsOf("activity")).toEqual([]);
    await stage.advance(9_500);
    expect((await stage.recordOf("t1"))?.leases).toEqual({});
  });
});

test("an engine that does not answer keeps no remote lease alive", async () => {
  const stage = newStage({ idleTimeoutMs: 5_000, limits: { max: 100 } });
  const { fleet, backend } = await stage.open();
  for (let n = 0; n < 40; n += 1) await (await stage.until(fleet.acquire({ thread: `parked-${n}` }))).release();
  await stage.until(fleet.acquire({ thread: "leased", ttlMs: 15_000 }));
  backend.hang("activity", { deaf: true });
  await stage.advance(25_000);
  expect((await stage.recordOf("leased"))?.leases).toEqual({});
});

test("sandboxes that do not answer do not keep an idle one from ending", async () => {
  const stage = newStage({ idleTimeoutMs: 5_000, limits: { max: 100 } });
  const { fleet, backend } = await stage.open();
  for (let n = 0; n < 80; n += 1) await (await stage.until(fleet.acquire({ thread: `parked-${n}` }))).release();
  const idle = stage.objects().at(-1)?.ref;
  backend.on("activity", (proceed, ref) => (ref === idle ? proceed() : new Promise(() => undefined)));
  await stage.advance(60_000);
  expect(stage.objects().map(({ ref }) => ref)).not.toContain(idle);
  expect(stage.objects()).toHaveLength(79);
});

test("an engine that does not answer for one sandbox does not keep the death of another from being found", async () => {
  const stage = newStage({ idleTimeoutMs: 0 });
  const { fleet, backend } = await stage.open();
  for (const thread of ["t1", "t2"]) await (await stage.until(fleet.acquire({ thread }))).release();
  const [silent, dead] = stage.objects();
  if (silent === undefined || dead === undefined) throw new Error("there should be two");
  const resume = stage.engine.suspendEvents();
  stage.killSandbox(dead.labels.sandboxId);
  backend.on("list", async () => []);
  backend.on("probe", (proceed, ref) => (ref === silent.ref ? new Promise(() => undefined) : proceed()));
  await stage.advance(20_000);
  expect(await stage.recordOf("t2")).toBe(null);
  expect(await stage.recordOf("t1")).toMatchObject({ state: "ready" });
  resume();
});

test("users that came and went leave nothing in the row cache", () => {
  const cache = new RowCache();
  for (let n = 0; n < 1_000; n += 1) {
    const record = recordWith({ sandboxId: `s${n}`, user: `u${n}`, thread: "t" });
    cache.putRecord({ rowid: n, record, fixed: null });
    cache.deleteRecord(record.sandboxId);
  }
  expect(cache.userCount).toBe(0);
});

test("a lease tells how long it was held, whatever the wall clock did meanwhile", async () => {
  const stage = newStage();
  const { fleet, world, eventsOf } = await stage.open();
  const lease = await fleet.acquire({ thread: "t1" });
  await stage.advance(4_000);
  world.stepWallClock(-3_600_000);
  await stage.until(lease.release());
  expect(eventsOf("lease-released")).toMatchObject([{ heldMs: 4_000 }]);
});

test("a stop that failed here and was finished by a peer is not remembered", async () => {
  const stage = newStage();
  const { store, backend, world } = await stage.open();
  const instance = "other" as InstanceId;
  const bus = new EventBus(world, instance);
  const base = { world, bus, store: store.proxy, backend: backend.proxy };
  const isCurrent = async () => true;
  const membership = new Membership({
    ...{ ...base, instance, slots: new Slots(), lifetimeMs: 60_000, isCurrent },
    ...{ engines: () => [backend.proxy.engineId], address: null },
  });
  await membership.renew();
  const isMaking = () => false;
  const retirement = new Retirement({
    ...{ ...base, membership, isMaking, underWay: new UnderWay(), stopTimeoutMs: 1_000 },
    ...{ ending: new AbortController().signal, budgetOf: () => null, forget: async () => undefined },
  });
  const reconciler = new Reconciler({
    ...{ ...base, membership, retirement, graceMs: 60_000, patienceMs: 1_000 },
    limits: () => ({ max: null, maxPerUser: null, maxPerEngine: null }),
  });
  const peers = new Peers({ ...base, membership, retirement, reconciler, isMaking, lifetimeMs: 60_000 });
  const place = { place: "home", ref: "gone", key: null, backend: "memory", blueprint: "default" } as const;
  const names = { sandboxId: "s1" as SandboxId, token: "token", blueprintHash: "hash" };
  const record = await store.proxy.claimForRemoval({ ...place, ...names, generation: null, actor: instance } as never);
  if (record === null) throw new Error("it should be condemned");
  const restore = backend.fail("destroy", new Error("device busy"));
  expect(await retirement.finishStop(record)).toBe(false);
  expect(retirement.failureCount).toBe(1);
  restore();
  const { sandboxId, revision } = record;
  expect(await store.proxy.remove({ sandboxId, revision, actor: instance })).toBe(true);
  await stage.until(peers.tend());
  expect(retirement.failureCount).toBe(0);
});
