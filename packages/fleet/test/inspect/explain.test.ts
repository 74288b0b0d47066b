/** Explain: why a sandbox is alive or was stopped, its holders, and since when. */

import { describe, expect, test } from "vitest";
import { newStage } from "../support/stage.ts";
import { watched } from "../support/virtual-time.ts";

const IDLE_MS = 60_000;

describe("explain", () => {
  test("of a leased sandbox names its holders, their purpose and since when", async () => {
    const stage = newStage();
    const { fleet, world } = await stage.open();
    const since = world.wallMs();
    await using lease = await fleet.acquire({ thread: "t1", purpose: "agent" });
    const remote = await fleet.acquire({ thread: "t1", purpose: "gateway", ttlMs: 60_000 });
    await stage.advance(1_000);
    const explained = await fleet.explain(lease.sandbox.id);
    expect(explained).toMatchObject({ state: "leased", stopped: null, ends: null });
    expect(explained.holders).toContainEqual({ who: lease.id, purpose: "agent", since });
    expect(explained.holders).toContainEqual({ who: remote.id, purpose: "gateway", since });
    expect(explained.holders).toContainEqual({ who: fleet.instanceId, purpose: "instance", since });
    expect(explained.holders).toHaveLength(3);
    expect(explained.summary).toContain("agent");
    expect(explained.history.map(({ type }) => type)).toContain("sandbox-created");
  });

  test("of a parked one names its thread, and what would end it when", async () => {
    const stage = newStage({ idleTimeoutMs: IDLE_MS, maxLifetimeMs: 10 * IDLE_MS });
    const { fleet, world } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.release();
    const explained = await fleet.explain(lease.sandbox.id);
    expect(explained).toMatchObject({ state: "parked", holders: [], stopped: null });
    expect(explained.ends).toEqual({ reason: "idle", at: world.wallMs() + IDLE_MS });
    expect(explained.summary).toContain("t1");
  });

  test("of a parked one near its maximum lifetime says that this comes first", async () => {
    const stage = newStage({ idleTimeoutMs: IDLE_MS, maxLifetimeMs: 2 * IDLE_MS });
    const { fleet, world } = await stage.open();
    const createdAt = world.wallMs();
    const lease = await fleet.acquire({ thread: "t1" });
    await stage.advance(1.5 * IDLE_MS);
    await lease.release();
    expect((await fleet.explain(lease.sandbox.id)).ends).toEqual({ reason: "expired", at: createdAt + 2 * IDLE_MS });
  });

  test("of one without any timeout says that nothing ends it", async () => {
    const stage = newStage({ idleTimeoutMs: 0, maxLifetimeMs: 0 });
    const { fleet } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.release();
    expect((await fleet.explain(lease.sandbox.id)).ends).toBeNull();
  });

  test("of a blank says that it waits for any thread", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const { fleet } = await stage.open();
    await stage.settle();
    const [blank] = await fleet.list();
    expect(blank?.state).toBe("blank");
    const explained = await fleet.explain(blank!.sandboxId);
    expect(explained).toMatchObject({ state: "blank", holders: [] });
    expect(explained.summary).toContain("any thread");
  });

  test("of one that is being made names the maker and the thread", async () => {
    const stage = newStage();
    const { fleet, backend } = await stage.open();
    const gate = backend.hang("create");
    const acquiring = watched(fleet.acquire({ thread: "t1" }));
    await stage.settle();
    const [making] = await fleet.list();
    const explained = await fleet.explain(making!.sandboxId);
    expect(explained.state).toBe("creating");
    expect(explained.summary).toContain(fleet.instanceId);
    expect(explained.summary).toContain("t1");
    gate.open();
    await (await stage.until(acquiring.promise)).release();
  });

  test("of one that is being stopped says why, since when, and names the stopper", async () => {
    const stage = newStage();
    const { fleet, backend, world } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await stage.advance(100_000);
    await lease.release();
    const gate = backend.hang("destroy");
    const at = world.wallMs();
    expect(await stage.until(fleet.destroy({ thread: "t1" }, { timeoutMs: 100 }))).toBe("stopping");
    const explained = await fleet.explain(lease.sandbox.id);
    expect(explained.state).toBe("stopping");
    expect(explained.stopped).toMatchObject({ reason: "destroyed", by: fleet.instanceId });
    expect(explained.stopped?.at).toBeGreaterThanOrEqual(at);
    gate.open();
  });

  test("of one that is gone still says why and when, and names the stopper", async () => {
    const stage = newStage({ idleTimeoutMs: IDLE_MS });
    const { fleet, world } = await stage.open();
    const lease = await fleet.acquire({ thread: "t1" });
    await lease.release();
    const parkedAt = world.wallMs();
    await stage.advance(2 * IDLE_MS);
    const explained = await fleet.explain(lease.sandbox.id);
    expect(explained).toMatchObject({ state: "absent", holders: [], ends: null });
    expect(explained.stopped).toMatchObject({ reason: "idle", by: fleet.instanceId });
    expect(explained.stopped!.at).toBeGreaterThanOrEqual(parkedAt + IDLE_MS);
    expect(explained.summary).toContain("idle");
    expect(explained.history.at(-1)?.type).toBe("sandbox-stopped");
  });

  test("of one that never was is sandbox_not_found", async () => {
    const stage = newStage();
    const { fleet } = await stage.open();
    const error = await stage.refusal("sandbox_not_found", fleet.explain("s-nobody"));
    expect(error.details.id).toBe("s-nobody");
  });
});

describe("list", () => {
  test("shows every state with one word", async () => {
    const stage = newStage({ pool: { default: 1 } });
    const { fleet, backend } = await stage.open();
    await stage.settle();
    const leased = await fleet.acquire({ thread: "leased" });
    await (await fleet.acquire({ thread: "parked" })).release();
    await (await fleet.acquire({ thread: "stopping" })).release();
    await stage.advance(6_000);
    const [destroy, create] = [backend.hang("destroy"), backend.hang("create")];
    await stage.until(fleet.destroy({ thread: "stopping" }, { timeoutMs: 10 }));
    const creating = watched(fleet.acquire({ thread: "creating", blueprint: "default" }));
    const another = watched(fleet.acquire({ thread: "another" }));
    await stage.settle();
    const states = Object.fromEntries((await fleet.list()).map(({ thread, state }) => [thread ?? "none", state]));
    expect(states).toMatchObject({ leased: "leased", parked: "parked", stopping: "stopping" });
    expect(Object.values(states)).toContain("creating");
    destroy.open();
    create.open();
    await stage.until(Promise.all([creating.promise, another.promise]));
    await leased.release();
  });
});
